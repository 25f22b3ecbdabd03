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
    Crowded     as the last three, but the other name still retires    Wait until it is gone

The step that makes a key is recorded before it is taken: the status has the new name without an ID, and the old key
in `retiringKeys`. What retires is deleted when coderd shows no connected daemon on it any more.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from coder_k8s.coderd.types import ProvisionerKey
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
        limit = NAME_LIMIT - len(OTHER)
        if len(base.encode()) > limit:
            base = f"{base.encode()[: limit - HASH_LENGTH - 1].decode(errors='ignore')}-{hashed(base)}"
        return base, base + OTHER


class Recorded(NamedTuple):
    """What the status says of the key in use; without an ID it is yet to be made."""

    name: str = ""
    id: str = ""
    organization: str = ""
    tags_hash: str = ""
    plane: str = ""
    url: str = ""
    created: datetime | None = None


class Adopt(NamedTuple):
    """Record a key that is there and whose secret we have."""

    key: ProvisionerKey


class Begin(NamedTuple):
    """Record the name of a key that is to be made, and why."""

    name: str
    cause: str


class Make(NamedTuple):
    """Create the key that is recorded; `lost` says that an earlier one of this name must be deleted first."""

    name: str
    lost: bool


class Keep(NamedTuple):
    """Nothing to do."""


class Wait(NamedTuple):
    """Another key is due, but both names are ours and in use: the old one must retire first."""

    cause: str


class Blocked(NamedTuple):
    """The name is taken by a key that we did not make."""

    name: str


Step = Adopt | Begin | Make | Keep | Wait | Blocked


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
    URL of the same control plane asks for another key, but the names that we have there are still ours.
    """
    here = (recorded.organization, recorded.plane) == (wanted.organization, wanted.plane)
    current = recorded.name if here else ""
    if not recorded.name and held is not None:
        return Adopt(held)
    if current and not recorded.id:
        return _finish(wanted, recorded, held, stored, retiring)
    cause = _cause(wanted, recorded, held, stored, asked)
    return _begin(wanted, current, cause, stored, retiring) if cause else Keep()


def _finish(
    wanted: Wanted,
    recorded: Recorded,
    held: ProvisionerKey | None,
    stored: Sequence[ProvisionerKey],
    retiring: Sequence[str],
) -> Step:
    """Go on with a key that was begun."""
    if held is not None and held.name == recorded.name:
        return Adopt(held)
    if recorded.name not in wanted.names or recorded.tags_hash != tags_hash(wanted.tags):
        return _begin(wanted, recorded.name, "SpecChanged", stored, retiring)
    return Make(recorded.name, lost=_find(stored, recorded.name) is not None)


def _cause(
    wanted: Wanted, recorded: Recorded, held: ProvisionerKey | None, stored: Sequence[ProvisionerKey], asked: str
) -> str:
    """Why the recorded key must be replaced; empty when it need not."""
    if not recorded.name:
        return "Created"
    if (recorded.plane, recorded.url) != (wanted.plane, wanted.url):
        return "ControlPlaneChanged"
    if recorded.organization != wanted.organization:
        return "OrganizationChanged"
    if recorded.name not in wanted.names:
        return "NameChanged"
    if recorded.tags_hash != tags_hash(wanted.tags):
        return "TagsChanged"
    live = _find(stored, recorded.name)
    if live is None or live.id != recorded.id:
        return "KeyDeleted"
    if held is None or held.id != recorded.id:
        return "SecretLost"
    return asked


def _begin(wanted: Wanted, current: str, cause: str, stored: Sequence[ProvisionerKey], retiring: Sequence[str]) -> Step:
    """The name that is not in use, if nobody else has it; a key of our own that still retires is waited for."""
    first, second = wanted.names
    for name in (second, first) if current == first else (first, second):
        if _find(stored, name) is None:
            return Begin(name, cause)
        if name not in (current, *retiring):
            return Blocked(name)
    return Wait(cause)


def _find(stored: Sequence[ProvisionerKey], name: str) -> ProvisionerKey | None:
    return next((key for key in stored if key.name == name), None)
