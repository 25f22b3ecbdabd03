"""Decides how many pods an autoscaled provisioner has.

    recommended = busy pods + assigned jobs + idleReplicas, if there are any of both, and pods that do not work
    target      = recommended, stabilized; at least the floor, at most maxReplicas
    desired     = target, as far as the policies, the state of the pods and this table allow

| situation | desired |
|---|---|
| the queue is not readable | not fewer than now; from the third error on at least `spec.replicas` |
| a rotation or an update is in progress | not fewer than now |
| fewer, and a removal may hit a busy pod | as few as possible without that, also above maxReplicas |
| fewer, and it is not known which pods are busy | not fewer than now, until no pod is busy |
| more, and pods do not start | not more than now |

| floor | applies |
|---|---|
| `minReplicas` | always |
| `minReplicas` of a schedule | from its start to its end |
| 1, if the others are 0 | for a minute once per `wakeInterval`, unless another daemon has the same tags |

Schedules and wake-ups are not recommendations: the floor ends at once, not after a stabilization window.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.api.shared import seconds

from .assignment import Share
from .behavior import History, limit, stabilize
from .victims import PodState, pods_start, removable

FAILURES = 3
"""Errors in a row after which an unreadable queue leads to at least `spec.replicas`."""
WAKE_TIME = timedelta(seconds=75)
"""How long a pod is ready when it wakes up: coderd looks for due workspaces every 60 seconds."""
WAKE_LEAD = timedelta(minutes=2)
"""How long before the end of `wakeInterval` a pod is created: it has to start, and coderd to notice it."""


class Limit(StrEnum):
    """Why the number of pods is not what the jobs need."""

    NONE = ""
    MAXIMUM = "MaxReplicas"
    MINIMUM = "MinReplicas"
    SCHEDULE = "Schedule"
    WAKE = "WakeInterval"
    WINDOW = "StabilizationWindow"
    POLICY = "Policy"
    QUEUE = "QueueUnreadable"
    ROTATION = "Rotation"
    UPDATE = "Update"
    BUSY = "BusyPods"
    UNKNOWN_PODS = "DaemonNames"
    NOT_STARTING = "PodsNotStarting"


class Demand(NamedTuple):
    """What a provisioner has to do."""

    share: Share = Share()
    busy: frozenset[str] = frozenset()
    """Names of pods with a running job."""
    unmapped: int = 0
    """Running jobs in pods that are not known."""
    uncertain: bool = False
    """Whether a running job may be in any of the pods."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision depends on, besides the spec."""

    now: datetime
    current: int
    """Replicas of the Deployment."""
    pods: Sequence[PodState]
    demand: Demand | None
    """Unknown if the queue is not readable."""
    failures: int = 0
    """Errors of the queue in a row."""
    fallback: int = 0
    """`spec.replicas`."""
    scheduled: int = 0
    """The highest floor of the schedules that are active."""
    hold: Limit = Limit.NONE
    """`ROTATION` or `UPDATE` while one is in progress."""
    covered: bool = False
    """Whether a connected daemon of another owner covers the tags."""
    last_scale: datetime | None = None


class Decision(msgspec.Struct, frozen=True):
    """The number of pods, and why it is not another one."""

    desired: int
    recommended: int | None
    """What the jobs need; unknown if the queue is not readable."""
    limited_by: Limit
    history: History
    """With this recommendation. The change is added once it is made."""
    floor: int = 0


def decide(spec: Autoscaling, seen: Observed, history: History | None) -> Decision:
    """Decide about the number of pods; `history` is None after a start of the operator."""
    history = history or History.started(seen.current, seen.now)
    if seen.demand is None:
        if seen.failures >= FAILURES:  # the window begins again when the queue is readable
            history = history.recommend(seen.current, spec.behavior, seen.now)
        return Decision(_unreadable(spec, seen), None, Limit.QUEUE, history)
    recommended = _recommend(spec, seen, seen.demand)
    history = history.recommend(recommended, spec.behavior, seen.now)
    stable = stabilize(seen.current, recommended, spec.behavior, history, seen.now)
    target, limited_by = _target(spec, seen, recommended, stable)
    desired = limit(seen.current, target, spec.behavior, history, seen.now)
    if desired != target:
        limited_by = Limit.POLICY
    allowed, reason = _allow(seen, seen.demand, desired)
    return Decision(allowed, recommended, reason or limited_by, history, _floor(spec, seen, stable)[0])


def _recommend(spec: Autoscaling, seen: Observed, demand: Demand) -> int:
    """The number of pods that the jobs need.

    One pod is added for all daemons that do not take jobs, and one for each pod that does not start while jobs wait.
    """
    working = len(demand.busy) + demand.unmapped + len(demand.share.jobs)
    if not working:
        return 0
    stuck = sum(pod.is_stuck(seen.now) for pod in seen.pods)
    return working + spec.idle_replicas + bool(demand.share.unresponsive) + min(stuck, len(demand.share.jobs))


def _target(spec: Autoscaling, seen: Observed, recommended: int, stable: int) -> tuple[int, Limit]:
    """The number of pods between floor and maximum, and what it is limited by."""
    floor, cause = _floor(spec, seen, stable)
    target = min(max(stable, floor), spec.max_replicas)
    if target != min(max(recommended, floor), spec.max_replicas):
        return target, Limit.WINDOW
    if target == recommended:
        return target, Limit.NONE
    return target, Limit.MAXIMUM if recommended > target else cause


def _floor(spec: Autoscaling, seen: Observed, stable: int) -> tuple[int, Limit]:
    floor = max(spec.min_replicas, seen.scheduled)
    if floor:
        return floor, Limit.SCHEDULE if seen.scheduled > spec.min_replicas else Limit.MINIMUM
    return (1, Limit.WAKE) if not stable and _wakes(spec, seen) else (0, Limit.NONE)


def _wakes(spec: Autoscaling, seen: Observed) -> bool:
    """Whether a pod has to run although there is nothing to do.

    | pods | a pod runs |
    |---|---|
    | none | once `wakeInterval` is nearly over since the last change; at once if there was none |
    | one that starts, or is ready for less than 75 seconds | on |
    | one that is ready for longer, or does not start | no longer |
    """
    if seen.covered:
        return False
    if seen.current == 0:
        interval = timedelta(seconds=seconds(spec.wake_interval))
        return seen.last_scale is None or seen.now >= seen.last_scale + interval - WAKE_LEAD
    if any(pod.is_stuck(seen.now) for pod in seen.pods):
        return False
    ready = [pod.ready_since for pod in seen.pods if pod.ready_since is not None]
    return not ready or seen.now - min(ready) < WAKE_TIME


def _allow(seen: Observed, demand: Demand, desired: int) -> tuple[int, Limit]:
    """The desired number, unless the state of the pods does not allow it, and why not."""
    if desired > seen.current and not pods_start(seen.pods, seen.now):
        return seen.current, Limit.NOT_STARTING
    if desired >= seen.current:
        return desired, Limit.NONE
    if seen.hold:
        return seen.current, seen.hold
    if demand.unmapped or demand.uncertain:
        return seen.current, Limit.UNKNOWN_PODS
    fewest = len(seen.pods) - removable(seen.pods, demand.busy)
    return (desired, Limit.NONE) if fewest <= desired else (min(fewest, seen.current), Limit.BUSY)


def _unreadable(spec: Autoscaling, seen: Observed) -> int:
    """Not fewer pods than now; after some errors at least the replicas of the spec."""
    fallback = seen.fallback if seen.failures >= FAILURES else 0
    return max(seen.current, min(max(fallback, spec.min_replicas, seen.scheduled), spec.max_replicas))


def room(spec: Autoscaling, pods: Sequence[PodState], busy: frozenset[str], now: datetime) -> int:
    """How many pods can get a job besides those that are ready: those that start, and those below the maximum.

    None while pods do not start, so that another provisioner gets the jobs.
    """
    if not pods_start(pods, now):
        return 0
    taken = sum(pod.name in busy or pod.ready_since is not None or pod.is_stuck(now) for pod in pods)
    return max(0, spec.max_replicas - taken)
