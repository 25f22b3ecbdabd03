"""Which pods the ReplicaSet controller removes first, and how many it can remove without a busy one.

It sorts pods by these criteria, and removes the first ones:

| first | then |
|---|---|
| without a node | on a node |
| pending, or in an unknown phase | running |
| not ready | ready |
| low `controller.kubernetes.io/pod-deletion-cost` | high |

Its further criteria (pods on the same node, age, restarts) do not matter here: a pod that is equal to a busy one by the
criteria above counts as one that may be removed after it.
https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

START_TIMEOUT = timedelta(minutes=3)
"""How long a pod may take to become ready before it no longer counts as one that starts."""


class PodState(msgspec.Struct, frozen=True):
    """A pod that is not being deleted."""

    name: str
    created: datetime
    ready_since: datetime | None = None
    scheduled: bool = True
    running: bool = True
    """Whether its phase is Running."""
    cost: int = 0
    """Its deletion cost, as in the cache."""
    idle_since: datetime | None = None
    """When its daemon was first seen without a job."""

    def is_stuck(self, now: datetime) -> bool:
        """Whether it did not become ready in time."""
        return self.ready_since is None and now - self.created >= START_TIMEOUT


def pods_start(pods: Sequence[PodState], now: datetime) -> bool:
    """Whether new pods start: every pod does in time, or a later one than those that do not is ready."""
    stuck = [pod.created for pod in pods if pod.is_stuck(now)]
    return not stuck or any(pod.ready_since is not None and pod.created >= max(stuck) for pod in pods)


def removable(pods: Iterable[PodState], busy: Collection[str]) -> int:
    """How many pods the ReplicaSet controller can remove, for certain without a busy one."""
    ranks = {pod.name: _rank(pod) for pod in pods}
    first = min((rank for name, rank in ranks.items() if name in busy), default=None)
    return sum(first is None or rank < first for rank in ranks.values())


def _rank(pod: PodState) -> tuple[bool, bool, bool, int]:
    return pod.scheduled, pod.running, pod.ready_since is not None, pod.cost
