"""Which provisioner key there should be, and what to do next about it.

A key carries organization and tags, and coderd shows its secret once. Replacing it without a gap takes several steps,
any of which may be the last one before a crash. So the next step always follows from three things that survive: what
the status says, what the Secret holds, and which keys coderd has. A name is unique in an organization, so the key
alternates between `<name>` and `<name>-2`, and old and new stand side by side until nobody uses the old one.

    state       status says         Secret holds         coderd has    next step
    ---------   -----------------   ------------------   -----------   -----------------------------------------------
    Nothing     no key              nothing, or garbage  not the name  Begin: record the name to be made
    Unrecorded  no key              a key that works     that key      Adopt: record it; replace only if it must be
    Taken       no key, or another  not its secret       the name      Blocked: somebody else made it
    Begun       name, but no ID     not its secret       not the name  Make: create it, store it, record its ID
    Lost        name, but no ID     not its secret       the name      Make, after deleting ours whose secret got lost
    Stored      name, but no ID     its secret           the name      Adopt: only its ID is yet to be recorded
    Ready       name and ID         its secret           that ID       Keep
    Drifted     name and ID         its secret           that ID       Begin with the other name; the old one retires
    Deleted     name and ID         its secret           not that ID   Begin with the other name
    Emptied     name and ID         nothing, or garbage  that ID       Begin with the other name; the old one retires
    Crowded     as Drifted, but the other name still retires           Wait until it is gone
    Cornered    as Emptied, but the other name still retires           Cornered: one of the two is made again

The step that makes a key is recorded before it is taken: the status has the new name without an ID, and the old key
in `retiringKeys`. From then on both names are ours. What retires is deleted when nobody uses it any more, which takes
pods that run with a later key; so whoever waits for that must have a key that works. Who has none and no name to spare
gives up the key that fewest daemons need: one whose key is deleted finishes its job but may get no other, so what
matters is that some on the other key still can.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerKey
from coder_k8s.controllers.names import HASH_LENGTH, fnv1a32, hashed

NAME_LIMIT = 64
OTHER = "-2"


class Wanted(NamedTuple):
    """What the spec asks for."""

    base: str
    organization: str
    tags: Mapping[str, str]
    plane: str
    url: str

    @property
    def names(self) -> tuple[str, str]:
        """The two names that a key of this base alternates between; coderd keeps names in lower case."""
        base = self.base.lower()
        return _shortened(base, NAME_LIMIT), _shortened(base, NAME_LIMIT - len(OTHER)) + OTHER


class Recorded(NamedTuple):
    """What the status says of the key in use; without an ID it is yet to be made."""

    name: str = ""
    id: str = ""
    organization: str = ""
    tags_hash: str = ""
    plane: str = ""
    url: str = ""


class Adopt(NamedTuple):
    """Record a key that is there and whose secret we have."""

    key: ProvisionerKey


class Begin(NamedTuple):
    """Record the name of a key that is to be made, why, and whether the one before it is there to retire."""

    name: str
    cause: str
    retires: bool


class Make(NamedTuple):
    """Create the key that is recorded; `lost` says that an earlier one of this name must be deleted first."""

    name: str
    lost: bool


class Keep(NamedTuple):
    """Nothing to do."""


class Wait(NamedTuple):
    """Another key is due and this one works, but both names are ours: the old one must retire first."""

    cause: str


class Blocked(NamedTuple):
    """The name is taken by a key that we did not make."""

    name: str


class Cornered(NamedTuple):
    """No key works and both names are ours and taken; `current` is the one in use, if it is one of them."""

    names: tuple[str, str]
    cause: str
    current: str
    retires: bool

    def give_way(self, daemons: Iterable[ProvisionerDaemon]) -> Begin:
        """Make the key again that fewest daemons wait for jobs with, then the one that fewest work with."""
        states = [(daemon.key_name, daemon.status) for daemon in daemons]
        name = min(self.names, key=lambda name: (states.count((name, "idle")), states.count((name, "busy"))))
        return Begin(name, self.cause, self.retires and name != self.current)


Step = Adopt | Begin | Make | Keep | Wait | Blocked | Cornered


def tags_hash(tags: Mapping[str, str]) -> str:
    return fnv1a32("".join(f"{name}\0{value}\0" for name, value in sorted(tags.items())).encode())


def next_step(
    wanted: Wanted,
    recorded: Recorded,
    held: ProvisionerKey | None,
    stored: Sequence[ProvisionerKey],
    retiring: Sequence[str],
    asked: str = "",
) -> Step:
    """What to do next.

    `held` is the key whose secret our Secret holds, as coderd knows it; `stored` are the keys of the organization;
    `retiring` the names of our own there that are on their way out; `asked` why a rotation is due, if it is. Another
    URL of the same control plane asks for another key, but the names that we have there are still ours; another name
    of the same organization asks for nothing.
    """
    live = _with_id(stored, recorded.id)
    here = recorded.plane == wanted.plane and (live is not None or recorded.organization == wanted.organization)
    begun = here and not recorded.id
    if held is not None and (not recorded.name or (begun and _is_stored(held, recorded.name, stored))):
        return Adopt(held)
    cause = _drift(wanted, recorded, here)
    if begun and not cause:
        return Make(recorded.name, lost=_named(stored, recorded.name) is not None)
    works = live is not None and held is not None and held.id == live.id
    if not cause and not works:
        cause = "SecretLost" if live is not None else "KeyDeleted"
    if not (cause or asked):
        return Keep()
    first, second = wanted.names
    order = (second, first) if here and recorded.name == first else (first, second)
    current = recorded.name if live is not None or (begun and _named(stored, recorded.name)) else ""
    retires = bool(current) or (bool(recorded.name) and not here)
    for name in order:
        if _named(stored, name) is None:
            return Begin(name, cause or asked, retires)
        if name not in (current, *retiring):
            return Blocked(name)
    return Wait(cause or asked) if works else Cornered(order, cause, current, retires)


def _drift(wanted: Wanted, recorded: Recorded, here: bool) -> str:
    """How the spec differs from what the key was made for; empty when it does not."""
    if not recorded.name:
        return "Created"
    if (recorded.plane, recorded.url) != (wanted.plane, wanted.url):
        return "ControlPlaneChanged"
    if not here:
        return "OrganizationChanged"
    if recorded.name not in wanted.names:
        return "NameChanged"
    return "TagsChanged" if recorded.tags_hash != tags_hash(wanted.tags) else ""


def _with_id(stored: Sequence[ProvisionerKey], key_id: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.id == key_id), None)


def _named(stored: Sequence[ProvisionerKey], name: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.name == name), None)


def _is_stored(held: ProvisionerKey, name: str, stored: Sequence[ProvisionerKey]) -> bool:
    """Whether it is the key of that name here, and not its namesake in another organization."""
    return held.name == name and _with_id(stored, held.id) is not None


def _shortened(name: str, limit: int) -> str:
    if len(name.encode()) <= limit:
        return name
    return f"{name.encode()[: limit - HASH_LENGTH - 1].decode(errors='ignore')}-{hashed(name)}"
