"""Decides the next step towards the provisioner key of an object.

A key has an organization and tags, and coderd returns its secret only once. Replacing a key without downtime takes
several steps, and the operator may crash after any of them. So the next step depends only on what survives a crash: the
status, the Secret, and the keys in coderd.

    state       status has          Secret has           coderd has           next step
    ---------   -----------------   ------------------   ------------------   -----------------------------------------
    Nothing     no key              nothing, or garbage  anything             RecordIntent: record the name to create
    Unrecorded  no key              a key that works     that key             Adopt: record it; replaced later if needed
    Pending     name, but no ID     not its secret       not the name         CreateKey: create, store, record its ID
    Lost        name, but no ID     not its secret       the name, owned      CreateKey, after deleting it
    Foreign     name, but no ID     not its secret       the name, not owned  RecordIntent with another name
    Stored      name, but no ID     its secret           the name             Adopt: only its ID is not recorded yet
    Ready       name and ID         its secret           that ID              Keep
    Drifted     name and ID         its secret           that ID              RecordIntent; the old one retires
    Deleted     name and ID         nothing, or garbage  not that ID          RecordIntent; the old one retires
    Emptied     name and ID         nothing, or garbage  that ID              RecordIntent; the old one retires
    Full        as Drifted, with RETIRING_LIMIT keys retiring                 Wait until one of them is deleted
    BackOff     any with an ID, as many retiring, the last one just now       Wait, twice as long for each further key

Names: the first key is named `<name>`. If this object has another key, or `<name>` is in use, the key is named
`<name>-<4 random hexadecimal digits>`. So a key of another owner blocks nothing and is never deleted.

Ownership: a key belongs to this object if the status has its ID. Name and time are recorded before each request. If the
response is lost, a key of that name belongs to this object only if coderd created it after that time, it has the
requested tags, no daemon uses it, and no other object records it. The time is that of the list in which the name was
free, by coderd's clock. A response that rejects the request proves that no key was created; this is recorded too. An
earlier version did not record the time: for its requests, all other criteria apply.

A changed URL of the same control plane requires a new key only if coderd does not have this key at the new URL.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import NamedTuple

import msgspec

from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.names import HASH_LENGTH, fnv1a32, hashed

NAME_LIMIT = 64
RETIRING_LIMIT = 3
"""Maximum number of retiring keys; a working key is not replaced while there are as many."""
DIGITS = 4
LEGACY_SUFFIX = "-2"
"""The suffix that an earlier version added to the name of every second key."""


class Wanted(NamedTuple):
    """The key that the spec requires; `organization` is an ID."""

    base: str
    organization: str
    tags: Mapping[str, str]
    plane: str
    url: str

    @property
    def first(self) -> str:
        """The name of the only key of an object; coderd stores names in lower case."""
        return _shortened(self.base.lower(), NAME_LIMIT)

    def unused_name(self, taken: Collection[str], rng: Random) -> str:
        """A name with random digits that is not taken."""
        while True:
            digits = f"-{rng.getrandbits(4 * DIGITS):0{DIGITS}x}"
            name = _shortened(self.base.lower(), NAME_LIMIT - len(digits)) + digits
            if name not in taken:
                return name

    def matches(self, name: str) -> bool:
        """Whether a key of this name was created for this base."""
        base = self.base.lower()
        stem, _, digits = name.rpartition("-")
        numbered = len(digits) == DIGITS and all(digit in "0123456789abcdef" for digit in digits)
        earlier = _shortened(base, NAME_LIMIT - len(LEGACY_SUFFIX)) + LEGACY_SUFFIX
        return name in (self.first, earlier) or (numbered and stem == _shortened(base, NAME_LIMIT - DIGITS - 1))


class Recorded(NamedTuple):
    """The key in use, as the status records it; without an ID it is not created yet."""

    name: str = ""
    id: str = ""
    organization: str = ""
    tags_hash: str = ""
    plane: str = ""
    url: str = ""
    requested: datetime | None = None
    """When it was requested, by coderd's clock; an earlier version did not record this."""
    refused: bool = False
    """Whether coderd rejected the request, so that no key was created."""


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do."""


class RecordIntent(msgspec.Struct, frozen=True):
    """Record the name of a key before it is created; `retires` is whether the previous key retires."""

    name: str
    cause: str
    retires: bool = False
    proven: str = ""
    """The ID of the previous key, if the status does not have it."""
    foreign: str = ""
    """The preferred name, if a key of another owner has it."""


class CreateKey(msgspec.Struct, frozen=True):
    """Create the recorded key; if `lost`, delete an earlier one of this name first."""

    name: str
    lost: bool = False


class Adopt(msgspec.Struct, frozen=True):
    """Record an existing key whose secret is in the Secret."""

    key: ProvisionerKey


class Wait(msgspec.Struct, frozen=True):
    """Do not create another key yet, because too many keys retire; `works` is whether the current key works."""

    cause: str
    works: bool = True


Request = RecordIntent | CreateKey
Step = Adopt | Request | Keep | Wait


def tags_hash(tags: Mapping[str, str]) -> str:
    return fnv1a32("".join(f"{name}\0{value}\0" for name, value in sorted(tags.items())).encode())


def normalize_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags without defaults that coderd adds and empty values that it drops."""
    return {
        name: value
        for name, value in tags.items()
        if value and (name, value) not in (("scope", "organization"), ("owner", ""))
    }


def is_requested(
    key: ProvisionerKey, hash_: str, requested: datetime | None, tags: Mapping[str, str], excluded: Collection[str]
) -> bool:
    """Whether a key was created by a request whose response was lost.

    `excluded` are the IDs of keys that daemons use or other objects record. `tags` are those of the spec: if the
    recorded hash is theirs, they are compared without what coderd adds or drops.
    """
    same = tags_hash(key.tags) == hash_ or (
        tags_hash(tags) == hash_ and normalize_tags(key.tags) == normalize_tags(tags)
    )
    return same and key.id not in excluded and (requested is None or key.created_at >= requested)


def next_step(
    wanted: Wanted,
    recorded: Recorded,
    held: ProvisionerKey | None,
    stored: Sequence[ProvisionerKey],
    retiring: Sequence[bool],
    rng: Random,
    *,
    due: str = "",
    excluded: Collection[str] = (),
    backing_off: bool = False,
) -> Step:
    """The next step.

    `held` is the key in coderd whose secret is in the Secret; it exists even if the list omits it.
    `stored` are the keys of the organization.
    `retiring` has an entry per retiring key: whether it is in this organization of this control plane.
    `due` is why a rotation is due, or empty.
    `excluded` are the IDs of keys that daemons use or other objects record.
    `backing_off` is whether the last key was replaced recently.
    """
    here = (recorded.plane, recorded.organization) == (wanted.plane, wanted.organization)
    live = _with_id([*stored, *([held] if held is not None else [])], recorded.id) if here else None
    pending = here and bool(recorded.name) and not recorded.id
    if held is not None and (not recorded.name or (pending and _is_stored(held, recorded.name, stored))):
        return Adopt(held)
    namesake = _named(stored, recorded.name) if pending else None
    created = _created(recorded, wanted, namesake, excluded)
    works = live is not None and held is not None and held.id == live.id
    cause = _drift(wanted, recorded, here, works)
    if pending and not cause and namesake == created:
        return CreateKey(recorded.name, lost=created is not None)
    if not cause and not works:
        cause = "NameTaken" if pending else "SecretLost" if live is not None else "KeyDeleted"
    if not (cause or due):
        return Keep()
    retires = bool(recorded.id) or created is not None or (bool(recorded.name) and not here and not recorded.refused)
    if len(retiring) >= RETIRING_LIMIT and (works or (retires and backing_off)):
        return Wait(cause or due, works)
    taken = {key.name for key in stored}
    alone = live is None and created is None and not any(retiring)
    foreign = recorded.name if cause == "NameTaken" else wanted.first if alone and wanted.first in taken else ""
    name = wanted.first if alone and wanted.first not in taken else wanted.unused_name(taken, rng)
    return RecordIntent(name, cause or due, retires, created.id if created is not None else "", foreign)


def _created(
    recorded: Recorded, wanted: Wanted, namesake: ProvisionerKey | None, excluded: Collection[str]
) -> ProvisionerKey | None:
    """The key of the recorded name, if it was created by the recorded request."""
    if namesake is None or recorded.refused:
        return None
    requested = is_requested(namesake, recorded.tags_hash, recorded.requested, wanted.tags, excluded)
    return namesake if requested else None


def _drift(wanted: Wanted, recorded: Recorded, here: bool, works: bool) -> str:
    """How the spec differs from the one that the key was created for; empty if it does not."""
    if not recorded.name:
        return "Created"
    if recorded.plane != wanted.plane or (recorded.url != wanted.url and not works):
        return "ControlPlaneChanged"
    if not here:
        return "OrganizationChanged"
    if not wanted.matches(recorded.name):
        return "NameChanged"
    return "TagsChanged" if recorded.tags_hash != tags_hash(wanted.tags) else ""


def _with_id(stored: Iterable[ProvisionerKey], key_id: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.id == key_id), None)


def _named(stored: Iterable[ProvisionerKey], name: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.name == name), None)


def _is_stored(held: ProvisionerKey, name: str, stored: Sequence[ProvisionerKey]) -> bool:
    """Whether it is the key of that name in this organization, and not in another one."""
    return held.name == name and _with_id(stored, held.id) is not None


def _shortened(name: str, limit: int) -> str:
    if len(name.encode()) <= limit:
        return name
    return f"{name.encode()[: limit - HASH_LENGTH - 1].decode(errors='ignore')}-{hashed(name)}"
