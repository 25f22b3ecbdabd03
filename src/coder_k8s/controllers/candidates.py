"""Who could run a job: the provisioners of a control plane and the daemons that coderd lists, with why each cannot.

| the candidate | can run jobs |
|---|---|
| a provisioner with `replicas`, or with autoscaling | yes, also while its pods start |
| a provisioner that is scaled to zero | no |
| a provisioner that is stalled, such as one without a license | no |
| a daemon that is connected | yes |
| a daemon that is offline | no |

The pods of a provisioner may fail to start; its own conditions report that.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from coder_k8s.api import CoderProvisioner
from coder_k8s.coderd.types import Organization, ProvisionerDaemon
from coder_k8s.kube.conditions import find

from .tags import SCOPE, UNTAGGED, USER, covers, key_tags, own_tags

BUILT_IN = "built-in"
"""The key of the daemons in coderd itself."""
LIVE = ("idle", "busy")
"""A daemon that is gone counts as busy until coderd fails its job, after 5 minutes."""
SHOWN_TAGS, SHOWN_LENGTH = 8, 64
"""How many tags a message shows, and how many characters of each: users choose them."""


class Obstacle(StrEnum):
    """Why a candidate runs no jobs, whatever their tags are."""

    SCALED_TO_ZERO = "is scaled to zero"
    STALLED = "is stalled"
    OFFLINE = "is offline"


class Candidate(msgspec.Struct, frozen=True):
    """A provisioner, or the daemons with the same key and tags."""

    name: str
    tags: Mapping[str, str]
    """The complete tags of its daemons."""
    obstacle: Obstacle | None = None
    managed: bool = False
    """Whether it is a CoderProvisioner."""


def candidates(
    organization: Organization, provisioners: Iterable[CoderProvisioner], daemons: Iterable[ProvisionerDaemon]
) -> list[Candidate]:
    """The candidates in an organization, provisioners first. The daemons of a provisioner count as that provisioner."""
    own = [each for each in provisioners if is_in(each, organization) and not each.deleting]
    owners = {each.status.provisioner_key_id: each for each in own if each.status.provisioner_key_id}
    running: set[str] = set()
    others: dict[tuple[str, frozenset[tuple[str, str]]], bool] = {}
    for daemon in daemons:
        owner, live = owners.get(daemon.key_id), daemon.status in LIVE
        if owner is not None and daemon.tags == key_tags(owner.spec.tags):
            running |= {owner.metadata.name} if live else set()
        elif owner is None or live:  # with other tags than those of the spec, until the key is rotated
            name = _name(daemon), frozenset(daemon.tags.items())
            others[name] = others.get(name, False) or live
    return [
        *(_of_provisioner(each, each.metadata.name in running) for each in sorted(own, key=lambda each: each.key)),
        *(
            Candidate(name, dict(tags), None if live else Obstacle.OFFLINE)
            for (name, tags), live in sorted(others.items(), key=lambda each: (each[0][0], sorted(each[0][1])))
        ),
    ]


def is_in(provisioner: CoderProvisioner, organization: Organization) -> bool:
    """Whether the daemons of a provisioner belong to an organization, which the status identifies by ID."""
    if provisioner.status.organization_id:
        return provisioner.status.organization_id == organization.id
    name = provisioner.spec.organization_name
    return name.lower() == organization.name.lower() or (name == "default" and organization.is_default)


def can_run(candidate: Candidate, job: Mapping[str, str]) -> bool:
    """Whether a candidate can run a job with these tags."""
    return candidate.obstacle is None and covers(candidate.tags, job)


def distinct(found: Iterable[Candidate]) -> list[Candidate]:
    """The candidates without those that have the same tags, and the same obstacle, as another one."""
    first: dict[tuple[object, ...], Candidate] = {}
    for each in found:
        first.setdefault((frozenset(each.tags.items()), each.obstacle, each.managed), each)
    return [*first.values()]


def rejection(candidate: Candidate, job: Mapping[str, str]) -> str:
    """Why a candidate cannot run a job with these tags, as the end of a sentence; empty if it can.

    | the job | the candidate | why it cannot |
    |---|---|---|
    | untagged | tagged | a job without tags needs a provisioner without tags |
    | of a user | of the organization, or of another user | only a daemon of this user can |
    | of the organization | of a user | it runs only jobs of this user |
    | tagged | lacks tags, or has other values | each of them |
    | with the same tags | is scaled to zero, stalled or offline | that |
    """
    if covers(candidate.tags, job):
        return candidate.obstacle or ""
    if job == UNTAGGED:
        return f"has the tags {shown(candidate.tags)}, and a job without tags needs a provisioner without tags"
    if job.get(SCOPE) == USER:
        return "cannot run jobs with scope=user of this owner"
    if candidate.tags.get(SCOPE) == USER:
        return "runs only jobs of its owner (scope=user)"
    return " and ".join(differences(candidate.tags, job)[:SHOWN_TAGS])


def differences(daemon: Mapping[str, str], job: Mapping[str, str]) -> list[str]:
    """What a daemon with these tags lacks for a job, one text for each tag."""
    by_folded = {name.casefold(): name for name in daemon}
    found = []
    for name, value in sorted(own_tags(job).items()):
        similar = name if name in daemon else by_folded.get(name.casefold())
        if similar is None:
            found.append(f"lacks {_pair(name, value)}")
        elif (similar, daemon[similar]) != (name, value):
            same = daemon[similar].casefold() == value.casefold()
            note = " (tags are case-sensitive)" if same else ""
            found.append(f"has {_pair(similar, daemon[similar])} instead of {_pair(name, value)}{note}")
    return found


def nearest(found: Sequence[Candidate], job: Mapping[str, str]) -> Candidate | None:
    """The candidate that differs least: the one with the same tags, or else with the fewest other ones."""

    def distance(candidate: Candidate) -> tuple[bool, int, bool]:
        same_scope = candidate.tags.get(SCOPE) == job.get(SCOPE)
        return not same_scope, len(differences(candidate.tags, job)), not candidate.managed

    return min(found, key=distance, default=None)


def shown(tags: Mapping[str, str]) -> str:
    """The tags that a user set, for a message."""
    pairs = [_pair(name, value) for name, value in sorted(own_tags(tags).items())]
    more = f" and {len(pairs) - SHOWN_TAGS} more" if len(pairs) > SHOWN_TAGS else ""
    return ", ".join(pairs[:SHOWN_TAGS]) + more


def _pair(name: str, value: str) -> str:
    return f"{shortened(name)}={shortened(value)}"


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"


def _of_provisioner(provisioner: CoderProvisioner, running: bool) -> Candidate:
    scales = provisioner.spec.replicas > 0 or provisioner.spec.autoscaling is not None
    stalled = find(provisioner.status.conditions, "Stalled")
    obstacle = None
    if not running and not scales:
        obstacle = Obstacle.SCALED_TO_ZERO
    elif not running and stalled is not None and stalled.is_true:
        obstacle = Obstacle.STALLED
    name = f"CoderProvisioner {provisioner.metadata.name}"
    return Candidate(name, key_tags(provisioner.spec.tags), obstacle, managed=True)


def _name(daemon: ProvisionerDaemon) -> str:
    if daemon.key_name == BUILT_IN:
        return "the built-in provisioner"
    return f"provisioner key {shortened(daemon.key_name)}" if daemon.key_name else f"daemon {shortened(daemon.name)}"
