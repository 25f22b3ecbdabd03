"""The events about jobs and schedules that no provisioner serves."""

from .event import Event

JOBS_UNSERVED = Event(
    "JobsUnserved",
    "Warning",
    "Jobs wait for more than a minute, and no provisioner can run them; one event for each organization and set of "
    "tags.",
    "See the condition `JobsServed`.",
)
JOBS_SERVED = Event("JobsServed", "Normal", "No job waits any more for a provisioner that does not exist.")
SCHEDULES_SKIPPED = Event(
    "SchedulesSkipped",
    "Warning",
    "Coder skips the scheduled starts and stops of workspaces, because no provisioner can run them.",
    "See the condition `SchedulesServed`.",
)
SCHEDULES_SERVED = Event(
    "SchedulesServed", "Normal", "A provisioner can run the scheduled starts and stops of workspaces again."
)

JOB_EVENTS = (JOBS_UNSERVED, JOBS_SERVED, SCHEDULES_SKIPPED, SCHEDULES_SERVED)
