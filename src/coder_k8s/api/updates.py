# ruff: noqa: RUF012 - msgspec copies an empty default
"""Updates of Coder: how a CoderControlPlane changes its image, and how far the last change came."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from .markers import Check, Schema
from .shared import Duration, Int32, Int64, NotEmpty, ObjectName, Part


class Step(StrEnum):
    """The steps of an update, in order, and the states in which none runs."""

    PREFLIGHT = "Preflight"
    WINDOW = "Window"
    BACKUP = "Backup"
    DRAIN = "Drain"
    STOP = "Stop"
    MIGRATE = "Migrate"
    VERIFY = "Verify"
    SCALE_BACK = "ScaleBack"
    ROLLOUT = "Rollout"
    FLEET = "Fleet"
    ROLLBACK = "Rollback"
    COMPLETE = "Complete"
    REFUSED = "Refused"
    ROLLED_BACK = "RolledBack"


class Plan(StrEnum):
    """How the pods are replaced."""

    ROLLING = "Rolling"
    RECREATE = "Recreate"


class Drain(Part, kw_only=True, frozen=True):
    """How long an update waits for running builds."""

    timeout: Duration = "30m"
    """How long to wait until no build runs, before the pods stop."""
    on_timeout: Annotated[str, Schema(enum=["Proceed", "Abort"])] = "Proceed"
    """Whether the update proceeds or is aborted when builds still run after this time."""


class Window(Part, kw_only=True, frozen=True):
    """A time in which updates may start."""

    schedule: Annotated[
        str,
        Schema(maxLength=128),
        Check("self.matches(r'^\\S+( +\\S+){4}$')", "must be a cron expression with five fields, such as 0 22 * * 6"),
    ]
    """When the window opens, as a cron expression with five fields."""
    duration: Duration
    """How long the window stays open."""
    time_zone: Annotated[str, Schema(maxLength=64), NotEmpty] = "UTC"
    """Time zone of the schedule, such as `Europe/Berlin`."""


class ClusterRef(Part, kw_only=True, frozen=True):
    """A CloudNativePG `Cluster` in the same namespace."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the Cluster."""


class BackupPolicy(Part, kw_only=True, frozen=True):
    """The backup that an update requires before the database is migrated."""

    cnpg_cluster_ref: ClusterRef
    """CloudNativePG Cluster with Coder's database."""
    max_age: Duration = "24h"
    """A completed backup that is not older is used. Otherwise the operator creates one."""


class UpdatePolicy(Part, kw_only=True, frozen=True):
    """What happens when `image` changes."""

    strategy: Annotated[str, Schema(enum=["Auto", "Recreate", "Rolling"])] = "Auto"
    """
    `Auto`: pods are replaced one after another if the new image has the database schema that the database has.
    Otherwise all pods stop, one pod migrates the database, and then the others start. `Recreate`: always the latter.
    `Rolling`: always one after another, without any check; old pods may run against a schema that they do not know.
    """
    drain: Drain = Drain()
    """How long the update waits for running builds before pods stop."""
    migration_timeout: Duration = "30m"
    """How long a migration may take before the object is `Stalled`. Nothing is killed."""
    windows: Annotated[list[Window], Schema(maxItems=50)] = []
    """When an update may start. Without windows, it starts at once."""
    backup: BackupPolicy | None = None
    """Backup that must be complete before pods stop."""


STEPS = [each.value for each in Step]


class UpdateStatus(Part, kw_only=True, frozen=True):
    """The update that runs, or the last one."""

    image: str
    """Image that the update is to."""
    step: Annotated[str, Schema(enum=STEPS)]
    """Current step; `Complete`, `Refused` or `RolledBack` when none runs."""
    from_image: str = ""
    """Image before the update."""
    from_: str = ""
    """Version of Coder before the update."""
    to: str = ""
    """Version of Coder in the new image, once it is known."""
    plan: Annotated[str, Schema(enum=[each.value for each in Plan])] = ""
    """How the pods are replaced, once it is known."""
    started_at: datetime | None = None
    """When the update started."""
    step_started_at: datetime | None = None
    """When the current step started."""
    schema_before: Int64 = 0
    """Number of the database schema before the update; 0 if it is not known."""
    schema_after: Int64 = 0
    """Number of the database schema after the update; 0 if it is not known."""
    resume_replicas: Int32 = 0
    """Number of pods when the pods were stopped."""
    backup_ref: str = ""
    """Name of the CloudNativePG Backup that was complete before the pods stopped."""
    inputs: str = ""
    """Hash of what the preflight depends on. A refused update is tried again when it changes."""
    reason: str = ""
    """Why the update was refused or rolled back."""
    message: str = ""
    """Details of this reason."""
