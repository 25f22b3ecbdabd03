"""Reads what a decision about the number of pods depends on: jobs and daemons from coderd, provisioners and pods from
the caches."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from coder_k8s.api import CoderProvisioner
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.errors import CoderdError
from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerJob
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.deployments import typed
from coder_k8s.controllers.labels import paused
from coder_k8s.controllers.queries import jobs_interval
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.controllers.tags import key_tags
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Unstructured

from . import objects, records
from .daemons import are_named_after_pods
from .demand import Member
from .podstates import ended, missing, states
from .scaling_memory import Memory

DAEMONS_INTERVAL = timedelta(minutes=1)

THROTTLED = 5.0
"""Seconds until the next attempt to read jobs that are too old, because the limit of requests is reached."""

Remembered = Callable[[Key], Memory]
"""What is remembered about a provisioner."""


class NoAccess(CoderdError):
    """There is no client for coderd."""


class Queue(NamedTuple):
    """The jobs and daemons of an organization, and when coderd was asked for the jobs."""

    jobs: Sequence[ProvisionerJob]
    daemons: Sequence[ProvisionerDaemon]
    listed: datetime
    next_read: float = 0.0
    """Seconds until the jobs can be, and should be, read again."""


class OrganizationView:
    """The queue of an organization, and its provisioners."""

    def __init__(self, context: Context[CoderProvisioner]) -> None:
        self._provisioners = context.objects
        self._children = context.children
        self._queries = context.runtime.queries
        self._now = context.now

    async def read(
        self, provisioner: CoderProvisioner, coderd: Coderd | None, *, fresh: bool = False, fresh_daemons: bool = False
    ) -> Queue:
        """The queue, from a new list of jobs if it must be `fresh` and the limit of requests allows it.

        With `fresh_daemons`, the list of daemons is not older than that of jobs.
        """
        if coderd is None:
            raise NoAccess("there is no token")
        organization = _organization(provisioner)
        jobs = await self._queries.jobs(coderd, organization, timedelta() if fresh else None)
        age = self._queries.jobs_age(coderd, organization)
        listed, max_age = self._now() - age, min(age, DAEMONS_INTERVAL) if fresh_daemons else DAEMONS_INTERVAL
        daemons = await self._queries.daemons(coderd, organization, max_age, Consumer.AUTOSCALING)
        due = (listed + jobs_interval(jobs) - self._now()).total_seconds()
        if due <= 0:
            due = max(THROTTLED, self._queries.wait(coderd, Consumer.AUTOSCALING))
        return Queue(jobs, daemons, listed, due)

    def members(self, provisioner: CoderProvisioner, remembered: Remembered) -> list[Member]:
        """The provisioners of the same organization: first this one, with the status that it has now."""
        index = self._provisioners.index(_plane)[_plane(provisioner)[0]]
        known = [found for key in sorted(index) if (found := self._provisioners.get(key)) is not None]
        organization = _organization(provisioner)
        others = [each for each in known if each.key != provisioner.key and _organization(each) == organization]
        return [self._member(each, remembered(each.key)) for each in (provisioner, *others)]

    def pods(self, provisioner: CoderProvisioner) -> list[Unstructured]:
        return self._children.pods(objects.NAME, provisioner)

    def _member(self, provisioner: CoderProvisioner, memory: Memory) -> Member:
        status, pods = provisioner.status, self.pods(provisioner)
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, objects.deployment_name(provisioner)))
        wanted = typed(live).spec.replicas if live is not None else 0
        missing_since = memory.missing_since or self._now()
        scaled = not (paused(provisioner) or provisioner.deleting)
        return Member(
            provisioner.metadata.name,
            key_tags(provisioner.spec.tags),
            frozenset({status.provisioner_key_id, *(key.id for key in status.retiring_keys)} - {""}),
            [*states(pods, memory.idle_since), *missing(pods, wanted, missing_since)],
            provisioner.spec.autoscaling if scaled else None,
            are_named_after_pods(provisioner),
            ended(pods),
            live is not None and not _is_stalled(provisioner),
        )


def _is_stalled(provisioner: CoderProvisioner) -> bool:
    found = find(provisioner.status.conditions, "Stalled")
    return found is not None and found.is_true is True


def _organization(provisioner: CoderProvisioner) -> str:
    return provisioner.status.organization_id or records.organization_name(provisioner)


def _plane(provisioner: CoderProvisioner) -> list[Key]:
    return [Key(provisioner.metadata.namespace, provisioner.spec.control_plane_ref.name)]
