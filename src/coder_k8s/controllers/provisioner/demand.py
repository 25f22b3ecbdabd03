"""What each autoscaled provisioner of an organization has to do, from the jobs and daemons that coderd reports.

coderd reports a daemon as idle until 90 seconds after it exited, so those of a provisioner are taken from its
pods. A job names its daemon, and a daemon has the name of its pod. Where that is not so, the busy pods are not known:

| a running job | its pod |
|---|---|
| has the name of a pod | is busy |
| has the name of a pod of another provisioner, or of one that is being deleted | does not count |
| has another name, and its daemon uses a key of the provisioner | may be any pod of that provisioner |
| has another name, and its daemon uses another key | does not count |
| has another name, and its daemon is not in the list, which may be a minute old | may be any pod that covers the job |
| has no daemon any more, because its key was deleted | may be any pod that covers the job |

A daemon has another name if the spec sets one (`--name`), if a webhook changes the host name of the pod, or if the pod
is not in the cache yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerJob
from coder_k8s.controllers.tags import covers

from .assignment import IdleDaemon, Pool, Tags, assign
from .autoscaling import Demand, room
from .victims import PodState


class Member(msgspec.Struct, frozen=True):
    """A provisioner of an organization."""

    name: str
    tags: Tags
    """Of its daemons."""
    keys: frozenset[str]
    """IDs of its keys."""
    pods: Sequence[PodState]
    """Those that are not being deleted."""
    spec: Autoscaling | None = None
    """None if the operator does not scale it now."""
    named_after_pods: bool = True
    """Whether the spec leaves the names of daemons to their pods."""
    ending: frozenset[str] = frozenset()
    """Names of pods that are being deleted, or have ended."""
    usable: bool = True
    """Whether it can get pods: it has a Deployment, and is not stalled."""


def demands(
    jobs: Sequence[ProvisionerJob], daemons: Sequence[ProvisionerDaemon], members: Sequence[Member], now: datetime
) -> dict[str, Demand]:
    """What each autoscaled provisioner has to do, by name."""
    running = [job for job in jobs if not job.waits]
    workers = {job.worker_name for job in running if job.worker_name}
    known = {name for member in members for name in _names(member)}
    listed = {daemon.id for daemon in daemons}
    unknown = [job for job in running if not job.worker_name or job.worker_name not in known]
    lost = [job for job in unknown if not job.worker_name or job.worker_id not in listed]
    scaled = [member for member in members if member.spec is not None]
    found = {member.name: _running(member, workers, daemons, unknown, lost) for member in scaled}
    idle = [*_others(daemons, members, workers)]
    pools = []
    for member in scaled:
        demand = found[member.name]
        idle += _idle(member, demand)
        pools.append(Pool(member.name, member.tags, _room(member, demand, now)))
    shares = assign((job for job in jobs if job.waits), idle, pools, now)
    return {name: demand._replace(share=shares[name]) for name, demand in found.items()}


def is_covered(member: Member, daemons: Iterable[ProvisionerDaemon]) -> bool:
    """Whether a connected daemon of another owner can run every job that this provisioner can."""
    return any(
        daemon.status in ("idle", "busy") and daemon.key_id not in member.keys and covers(daemon.tags, member.tags)
        for daemon in daemons
    )


def _running(
    member: Member,
    workers: set[str],
    daemons: Sequence[ProvisionerDaemon],
    unknown: Sequence[ProvisionerJob],
    lost: Sequence[ProvisionerJob],
) -> Demand:
    """The pods that run jobs. It is not known in which pods `unknown` jobs run, and on which daemons `lost` ones do."""
    own = {daemon.id for daemon in daemons if daemon.key_id in member.keys}
    names = {pod.name for pod in member.pods} if member.named_after_pods else set()
    return Demand(
        busy=frozenset(names & workers),
        unmapped=sum(job.worker_id in own for job in unknown),
        uncertain=any(covers(member.tags, job.tags) for job in lost),
    )


def _names(member: Member) -> Iterator[str]:
    """The names of daemons whose pods are known."""
    if member.named_after_pods:
        yield from (pod.name for pod in member.pods)
        yield from member.ending


def _room(member: Member, demand: Demand, now: datetime) -> int:
    spec = member.spec
    return room(spec, member.pods, demand.busy, now) if spec is not None and member.usable else 0


def _idle(member: Member, demand: Demand) -> Iterator[IdleDaemon]:
    """The idle daemons of a provisioner. If it is not known which ones are busy, only their number is right."""
    ready = [pod for pod in member.pods if pod.ready_since is not None and pod.name not in demand.busy]
    for pod in ready[demand.unmapped :]:
        yield IdleDaemon(pod.name, member.tags, member.name, pod.idle_since)


def _others(daemons: Iterable[ProvisionerDaemon], members: Iterable[Member], workers: set[str]) -> Iterator[IdleDaemon]:
    """The idle daemons that the operator does not scale. If it manages them, their pods must exist."""
    owners = {key: member for member in members for key in member.keys}
    for daemon in daemons:
        owner = owners.get(daemon.key_id)
        if daemon.status != "idle" or daemon.name in workers:
            continue
        if owner is None or (owner.spec is None and _exists(owner, daemon)):
            yield IdleDaemon(daemon.name, daemon.tags)


def _exists(owner: Member, daemon: ProvisionerDaemon) -> bool:
    ready = {pod.name for pod in owner.pods if pod.ready_since is not None}
    return daemon.name in ready or not owner.named_after_pods
