"""The provisioners of a control plane during an update."""

from collections.abc import Iterable
from enum import Enum, auto

from coder_k8s.api import CoderControlPlane, CoderProvisioner
from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.dependents import planes_of_provisioner
from coder_k8s.controllers.labels import paused
from coder_k8s.controllers.pods import is_over
from coder_k8s.controllers.resolver import CoderdResolver
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key

from .known_paths import parse

WATCHED = frozenset((Step.DRAIN, Step.FLEET))
"""Steps that depend on provisioners."""
PROVISIONER = "coder-provisioner"
"""Component of the pods of provisioners."""


class Builds(Enum):
    """Whether builds run."""

    NONE = auto()
    RUNNING = auto()
    UNREADABLE = auto()
    """Coder does not report it."""


def depends_on_provisioners(plane: CoderControlPlane) -> bool:
    """Whether the current step of an update waits for provisioners."""
    return plane.status.update is not None and plane.status.update.step in WATCHED


class Fleet:
    """Observes provisioners and running builds."""

    def __init__(self, resolver: CoderdResolver, provisioners: Cache[CoderProvisioner], children: Children) -> None:
        self._resolver = resolver
        self._children = children
        self._provisioners = provisioners
        self._index = provisioners.index(planes_of_provisioner)

    def is_updated(self, plane: CoderControlPlane, update: UpdateStatus) -> bool:
        """Whether all provisioners that follow the image of the control plane run it."""
        return all(follows(each, update.to) for each in self._of(plane.key))

    async def builds(self, plane: CoderControlPlane, *, down: bool) -> Builds:
        """Whether builds run; `down`: whether Coder has not served for a while, so that none of its own runs.

        | pods of provisioners | Coder                                | builds       |
        |----------------------|--------------------------------------|--------------|
        | exist                | any                                  | `RUNNING`    |
        | none                 | is down                              | `NONE`       |
        | none                 | reports the jobs that run            | `RUNNING`    |
        | none                 | reports none                         | `NONE`       |
        | none                 | does not report, or not to this user | `UNREADABLE` |
        """
        if any(not paused(each) and self._has_pods(each) for each in self._of(plane.key)):
            return Builds.RUNNING
        if down:
            return Builds.NONE
        coderd = await self._resolver.with_operator_token(plane)
        if coderd is None:
            return Builds.UNREADABLE
        try:
            return Builds.RUNNING if await runs_jobs(coderd) else Builds.NONE
        except errors.CoderdError:
            return Builds.UNREADABLE

    def _has_pods(self, provisioner: CoderProvisioner) -> bool:
        """Whether there are pods, including those that stop: a daemon finishes its build first."""
        pods = self._children.pods(PROVISIONER, provisioner)
        return bool(provisioner.status.replicas) or not all(map(is_over, pods))

    def _of(self, plane: Key) -> Iterable[CoderProvisioner]:
        found = (self._provisioners.get(key) for key in sorted(self._index[plane]))
        return [each for each in found if each is not None and not each.deleting]


def follows(provisioner: CoderProvisioner, version: str) -> bool:
    """Whether the daemons of a provisioner have this version of Coder; others than the followers need not have it."""
    if provisioner.spec.image or paused(provisioner) or is_scaled_to_zero(provisioner):
        return True
    daemons = provisioner.status.daemons
    versions = {parse(each) for each in daemons.versions} if daemons else set()
    ready = find(provisioner.status.conditions, "Ready")
    if ready is None or not ready.is_true or not provisioner.status.ready_replicas:
        return False
    return versions <= {parse(version)}


def is_scaled_to_zero(provisioner: CoderProvisioner) -> bool:
    """Whether a provisioner has no pods on purpose; with autoscaling, those that it gets later have the new image."""
    spec, scaling = provisioner.spec, provisioner.status.autoscaling
    if spec.autoscaling is None:
        return spec.replicas == 0
    return spec.autoscaling.min_replicas == 0 and scaling is not None and scaling.desired_replicas == 0


async def runs_jobs(coderd: Coderd) -> bool:
    """Whether a job runs in any organization; raises `NotFound` if the operator may not read the jobs of one.

    coderd responds the same for an organization that was deleted meanwhile, which has none.
    """
    for organization in await coderd.organizations():
        try:
            jobs = await coderd.provisioner_jobs(organization.id)
        except errors.NotFound:
            if organization.id in {each.id for each in await coderd.organizations()}:
                raise
            continue
        if not all(job.waits for job in jobs):
            return True
    return False
