"""Which provisioner key there should be, and what to do next about it.

A key carries organization and tags, and coderd shows its secret once. Replacing it without a gap takes several steps,
any of which may be the last one before a crash. So the next step always follows from three things that survive: what
the status says, what the Secret holds, and which keys coderd has.

    state       status says         Secret holds         coderd has           next step
    ---------   -----------------   ------------------   ------------------   -----------------------------------------
    Nothing     no key              nothing, or garbage  whatever             Begin: record the name to be made
    Unrecorded  no key              a key that works     that key             Adopt: record it; replace it if it must be
    Begun       name, but no ID     not its secret       not the name         Make: create it, store it, record its ID
    Lost        name, but no ID     not its secret       the name, ours       Make, after deleting it
    Foreign     name, but no ID     not its secret       the name, not ours   Begin with another name
    Stored      name, but no ID     its secret           the name             Adopt: only its ID is yet to be recorded
    Ready       name and ID         its secret           that ID              Keep
    Drifted     name and ID         its secret           that ID              Begin; the old one retires
    Deleted     name and ID         nothing, or garbage  not that ID          Begin; the old one retires, if it is there
    Emptied     name and ID         nothing, or garbage  that ID              Begin; the old one retires
    Full        as Drifted, while as many keys retire as may                  Wait until one of them is gone
    Hasty       any with an ID, as many keys retire, the last one just now    Wait for a moment, twice as long each time

Names: the first key is called `<name>`. One that stands beside another of this object, or whose name another key has,
is called `<name>-<4 random hexadecimal digits>`. So no key that belongs to someone else is in the way, and none is
ever deleted.

Ownership: a key belongs to this object if the status knows its ID. Name and time are recorded before each request; if
the answer got lost, the key of that name is taken for the one that was made only if coderd made it since, with these
tags, no daemon uses it, and no other object records it. The time is that of the list that showed the name free, by
coderd's own clock. An answer that refuses the request proves that it made no key, which is recorded as well. An earlier
version did not record the time: what it requested is recognized by all the rest.

Another URL of the same control plane asks for another key only if coderd does not know this one there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import NamedTuple

from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.names import HASH_LENGTH, fnv1a32, hashed

NAME_LIMIT = 64
RETIRING_LIMIT = 3
"""Keys that may retire at a time; one that works is not replaced before there is room."""
DIGITS = 4
EARLIER = "-2"
"""What an earlier version put behind the name of every other key."""


class Wanted(NamedTuple):
    """What the spec asks for; the organization is known by its ID."""

    base: str
    organization: str
    tags: Mapping[str, str]
    plane: str
    url: str

    @property
    def first(self) -> str:
        """The name of a key that stands alone; coderd keeps names in lower case."""
        return _shortened(self.base.lower(), NAME_LIMIT)

    def another(self, taken: Collection[str], rng: Random) -> str:
        """The name of a key beside others."""
        while True:
            digits = f"-{rng.getrandbits(4 * DIGITS):0{DIGITS}x}"
            name = _shortened(self.base.lower(), NAME_LIMIT - len(digits)) + digits
            if name not in taken:
                return name

    def fits(self, name: str) -> bool:
        """Whether a key of this name was made for this base."""
        base = self.base.lower()
        stem, _, digits = name.rpartition("-")
        numbered = len(digits) == DIGITS and all(digit in "0123456789abcdef" for digit in digits)
        earlier = _shortened(base, NAME_LIMIT - len(EARLIER)) + EARLIER
        return name in (self.first, earlier) or (numbered and stem == _shortened(base, NAME_LIMIT - DIGITS - 1))


class Recorded(NamedTuple):
    """What the status says of the key in use; without an ID it is yet to be made."""

    name: str = ""
    id: str = ""
    organization: str = ""
    tags_hash: str = ""
    plane: str = ""
    url: str = ""
    requested: datetime | None = None
    """When it was requested, by coderd's clock; an earlier version did not say."""
    refused: bool = False
    """That coderd refused the request for it, and made no key."""


@dataclass(frozen=True)
class Keep:
    """Nothing to do."""


@dataclass(frozen=True)
class Begin:
    """Record the name of a key that is to be made, why, and whether the one before it is there to retire."""

    name: str
    cause: str
    retires: bool = False
    proven: str = ""
    """The ID of the one before it, if the status does not have that."""
    foreign: str = ""
    """The name of a key of someone else, which this one would have had."""


@dataclass(frozen=True)
class Make:
    """Create the key that is recorded; `lost` says that an earlier one of this name must be deleted first."""

    name: str
    lost: bool = False


@dataclass(frozen=True)
class Adopt:
    """Record a key that is there and whose secret we have."""

    key: ProvisionerKey


@dataclass(frozen=True)
class Wait:
    """Another key is due, but too many keys retire: one of them must go first, if this one works."""

    cause: str
    works: bool = True


Step = Adopt | Begin | Make | Keep | Wait


def tags_hash(tags: Mapping[str, str]) -> str:
    return fnv1a32("".join(f"{name}\0{value}\0" for name, value in sorted(tags.items())).encode())


def plain(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags without what coderd fills in or drops by itself."""
    return {
        name: value
        for name, value in tags.items()
        if value and (name, value) not in (("scope", "organization"), ("owner", ""))
    }


def is_requested(
    key: ProvisionerKey, hash_: str, requested: datetime | None, tags: Mapping[str, str], spared: Collection[str]
) -> bool:
    """Whether a key is the one that was requested, of which only the name is known; `spared` are the IDs of the keys
    that daemons use or other objects record, `tags` those of the spec, which say more than the hash as long as it is
    theirs."""
    same = tags_hash(key.tags) == hash_ or (tags_hash(tags) == hash_ and plain(key.tags) == plain(tags))
    return same and key.id not in spared and (requested is None or key.created_at >= requested)


def next_step(
    wanted: Wanted,
    recorded: Recorded,
    held: ProvisionerKey | None,
    stored: Sequence[ProvisionerKey],
    retiring: Sequence[bool],
    rng: Random,
    *,
    asked: str = "",
    spared: Collection[str] = (),
    hasty: bool = False,
) -> Step:
    """What to do next.

    `held` is the key whose secret our Secret holds, as coderd knows it; `stored` are the keys of the organization;
    `retiring` says of each key on its way out whether it is in this organization of this control plane; `asked` why a
    rotation is due, if it is; `spared` are the IDs of the keys that daemons use or other objects record. What the list
    omits and the secret identifies is there all the same. `hasty` says that the last key was replaced a moment ago.
    """
    here = (recorded.plane, recorded.organization) == (wanted.plane, wanted.organization)
    live = _with_id([*stored, *([held] if held is not None else [])], recorded.id) if here else None
    begun = here and bool(recorded.name) and not recorded.id
    if held is not None and (not recorded.name or (begun and _is_stored(held, recorded.name, stored))):
        return Adopt(held)
    namesake = _named(stored, recorded.name) if begun else None
    made = _made(recorded, wanted, namesake, spared)
    works = live is not None and held is not None and held.id == live.id
    cause = _drift(wanted, recorded, here, works)
    if begun and not cause and namesake == made:
        return Make(recorded.name, lost=made is not None)
    if not cause and not works:
        cause = "NameTaken" if begun else "SecretLost" if live is not None else "KeyDeleted"
    if not (cause or asked):
        return Keep()
    retires = bool(recorded.id) or made is not None or (bool(recorded.name) and not here and not recorded.refused)
    if len(retiring) >= RETIRING_LIMIT and (works or (retires and hasty)):
        return Wait(cause or asked, works)
    taken = {key.name for key in stored}
    alone = live is None and made is None and not any(retiring)
    foreign = recorded.name if cause == "NameTaken" else wanted.first if alone and wanted.first in taken else ""
    name = wanted.first if alone and wanted.first not in taken else wanted.another(taken, rng)
    return Begin(name, cause or asked, retires, made.id if made is not None else "", foreign)


def _made(
    recorded: Recorded, wanted: Wanted, namesake: ProvisionerKey | None, spared: Collection[str]
) -> ProvisionerKey | None:
    """The key of the recorded name, if the request for it made that key."""
    if namesake is None or recorded.refused:
        return None
    requested = is_requested(namesake, recorded.tags_hash, recorded.requested, wanted.tags, spared)
    return namesake if requested else None


def _drift(wanted: Wanted, recorded: Recorded, here: bool, works: bool) -> str:
    """How the spec differs from what the key was made for; empty when it does not."""
    if not recorded.name:
        return "Created"
    if recorded.plane != wanted.plane or (recorded.url != wanted.url and not works):
        return "ControlPlaneChanged"
    if not here:
        return "OrganizationChanged"
    if not wanted.fits(recorded.name):
        return "NameChanged"
    return "TagsChanged" if recorded.tags_hash != tags_hash(wanted.tags) else ""


def _with_id(stored: Iterable[ProvisionerKey], key_id: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.id == key_id), None)


def _named(stored: Iterable[ProvisionerKey], name: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.name == name), None)


def _is_stored(held: ProvisionerKey, name: str, stored: Sequence[ProvisionerKey]) -> bool:
    """Whether it is the key of that name here, and not its namesake in another organization."""
    return held.name == name and _with_id(stored, held.id) is not None


def _shortened(name: str, limit: int) -> str:
    if len(name.encode()) <= limit:
        return name
    return f"{name.encode()[: limit - HASH_LENGTH - 1].decode(errors='ignore')}-{hashed(name)}"
