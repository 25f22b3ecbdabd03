# ruff: noqa: RUF012 - msgspec copies an empty default
"""How the number of daemons follows the job queue of Coder."""

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from .markers import Check, Schema
from .shared import IS_DURATION, AtLeastOne, Duration, Int32, Part, Replicas

CronExpression = Annotated[
    str,
    Schema(maxLength=128),
    Check(
        r"self.matches(r'^\s*(\S+\s+){4}\S+\s*$')",
        "must be a cron expression with five fields, such as 50 8 * * 1-5",
    ),
]


class ScalingPolicy(Part, kw_only=True, frozen=True):
    """How many pods may be added or removed within a period, as in `autoscaling/v2`."""

    type: Annotated[str, Schema(enum=["Pods", "Percent"])]
    """Whether `value` is a number of pods, or a percentage of the pods at the start of the period."""
    value: Annotated[Int32, AtLeastOne]
    """Number of pods, or percentage."""
    period_seconds: Annotated[Int32, Schema(minimum=1, maximum=1800)]
    """Length of the period."""


class ScalingRules(Part, kw_only=True, frozen=True):
    """Rules for one direction, as in `autoscaling/v2`."""

    stabilization_window_seconds: Annotated[Int32, Schema(minimum=0, maximum=3600)] = 0
    """Seconds of past recommendations to consider. The most cautious one applies."""
    select_policy: Annotated[str, Schema(enum=["Max", "Min", "Disabled"])] = "Max"
    """Policy that applies: the one that allows the largest change, or the smallest. `Disabled` allows none."""
    policies: Annotated[list[ScalingPolicy], Schema(minItems=1, maxItems=16)] = msgspec.field(
        default_factory=lambda: [ScalingPolicy(type="Percent", value=100, period_seconds=15)]
    )
    """Limits of the change."""


class ScaleUpRules(ScalingRules, kw_only=True, frozen=True):
    """Rules for more pods."""

    policies: Annotated[list[ScalingPolicy], Schema(minItems=1, maxItems=16)] = msgspec.field(
        default_factory=lambda: [
            ScalingPolicy(type="Percent", value=100, period_seconds=10),
            ScalingPolicy(type="Pods", value=100, period_seconds=10),
        ]
    )
    """Limits of the change."""


class ScaleDownRules(ScalingRules, kw_only=True, frozen=True):
    """Rules for fewer pods."""

    stabilization_window_seconds: Annotated[Int32, Schema(minimum=0, maximum=3600)] = 300


class ScalingBehavior(Part, kw_only=True, frozen=True):
    """How fast the number of pods changes."""

    scale_up: ScaleUpRules = ScaleUpRules()
    """Rules for more pods."""
    scale_down: ScaleDownRules = ScaleDownRules()
    """Rules for fewer pods."""


class ScalingSchedule(Part, kw_only=True, frozen=True):
    """A minimum number of pods from `start` to `end`."""

    start: CronExpression
    """When the minimum begins to apply, as a cron expression."""
    end: CronExpression
    """When it no longer applies, as a cron expression."""
    time_zone: Annotated[str, Schema(minLength=1, maxLength=64)] = "UTC"
    """Time zone of both, such as `Europe/Berlin`."""
    min_replicas: Annotated[Int32, AtLeastOne]
    """Minimum number of pods."""


class Autoscaling(Part, kw_only=True, frozen=True):
    """Sets the number of pods by the jobs that wait and run in Coder."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check("self.maxReplicas >= self.minReplicas", "maxReplicas must not be less than minReplicas"),
        Check(
            "!has(self.schedules) || self.schedules.all(schedule, schedule.minReplicas <= self.maxReplicas)",
            "minReplicas of a schedule must not be greater than maxReplicas",
        ),
    )

    min_replicas: Replicas = 1
    """Minimum number of pods. With 0, no pod runs while there is nothing to do; see `wakeInterval`."""
    max_replicas: Annotated[Int32, AtLeastOne]
    """Maximum number of pods."""
    idle_replicas: Replicas = 0
    """Pods in addition to those that work, while a job waits or runs."""
    behavior: ScalingBehavior = ScalingBehavior()
    """How fast the number of pods changes, as in `autoscaling/v2`."""
    schedules: Annotated[list[ScalingSchedule], Schema(maxItems=32)] = []
    """Times with a higher minimum number of pods."""
    wake_interval: Annotated[
        Duration,
        Check(f"!{IS_DURATION} || duration(self) >= duration('5m')", "must be at least 5m"),
    ] = "10m"
    """How often one pod runs for about a minute while the number of pods is 0. Coder starts and stops workspaces on
    schedule only while a daemon is connected."""


class Disruption(Part, kw_only=True, frozen=True):
    """How pods with a running build are protected; applies with `autoscaling`."""

    protect_busy_pods: Annotated[str, Schema(enum=["None", "Annotations", "Budget"])] = "Annotations"
    """`Annotations`: the cluster autoscaler and Karpenter do not remove the node of a pod with a running build.
    `Budget`: in addition, a PodDisruptionBudget rejects its eviction."""


class AutoscalingStatus(Part, kw_only=True, frozen=True):
    """The last decision about the number of pods."""

    desired_replicas: Int32
    """Number of pods that the Deployment asks for."""
    pending_jobs: Int32
    """Jobs that wait in Coder and are assigned to this object."""
    oldest_pending: datetime | None = None
    """When the oldest of them was created."""
    limited_by: str = ""
    """Why the number of pods is not what the jobs need; empty if it is."""
    last_scale_time: datetime | None = None
    """When the number of pods last changed."""
