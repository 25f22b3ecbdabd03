"""For which templates Coder skips scheduled builds, and the condition `SchedulesServed`.

Coder starts and stops workspaces on schedule, and deletes dormant ones, only while a daemon with the tags of the
template is connected. Otherwise there is no job, and only a line in coderd's log. A provisioner with `replicas` or
autoscaling counts, also while its pods start.
"""

from collections.abc import Mapping, Sequence

import msgspec

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.coderd.types import Organization
from coder_k8s.controllers.candidates import Candidate, Obstacle, can_run
from coder_k8s.controllers.report import Outcome
from coder_k8s.controllers.tags import UNTAGGED, covers

from .unserved import closest, need

SCHEDULES_SERVED = ControlPlaneCondition.SCHEDULES_SERVED
SHOWN_NAMES = 10


class Schedule(msgspec.Struct, frozen=True):
    """The tags of the scheduled builds of a template, and who could run them."""

    organization: Organization
    template: str
    tags: Mapping[str, str]
    candidates: Sequence[Candidate]

    @property
    def name(self) -> str:
        return f"{self.organization.name}/{self.template}"


def skipped(schedules: Sequence[Schedule]) -> list[Schedule]:
    """The templates whose scheduled builds no candidate can run, by name."""
    found = [each for each in schedules if not any(can_run(one, each.tags) for one in each.candidates)]
    return sorted(found, key=lambda each: each.name)


def judge(found: Sequence[Schedule], unread: Outcome | None) -> Outcome:
    """The condition `SchedulesServed`; `unread` if not all of the templates could be read."""
    if not found:
        message = "A provisioner can run the scheduled builds of each template"
        served = Outcome(SCHEDULES_SERVED, True, reasons.ALL_SERVED, message)
        return (unread or served)._replace(satisfied=True)
    names, more = [each.name for each in found[:SHOWN_NAMES]], len(found) - SHOWN_NAMES
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    noun = "template" if len(found) == 1 else "templates"
    message = f"Coder skips autostart, autostop and automatic deletion of workspaces of {noun} {listed}"
    return Outcome(
        SCHEDULES_SERVED,
        False,
        reasons.TEMPLATES_WITHOUT_PROVISIONER,
        f"{message}. {explain(found[0])}",
        satisfied=True,
    )


def explain(schedule: Schedule) -> str:
    """Why no candidate can run the builds of a template."""
    matching = [each for each in schedule.candidates if covers(each.tags, schedule.tags)]
    if matching:
        first = min(matching, key=lambda each: each.obstacle is not Obstacle.SCALED_TO_ZERO)
        return f"{first.name} has the tags of {schedule.name}, but {first.obstacle}"
    if schedule.tags == UNTAGGED:
        return f"{schedule.name} has no tags and needs a provisioner without tags"
    return f"{schedule.name} needs {need(schedule.tags)}; {closest(schedule.candidates, schedule.tags)}"
