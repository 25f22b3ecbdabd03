"""Which jobs no provisioner can run, and the condition `JobsServed`.

| a job waits, and | it is |
|---|---|
| a candidate can run it | served |
| it is younger than a minute | not reported yet: a daemon may be starting |
| a provisioner with its tags is scaled to zero, without autoscaling | `ProvisionerScaledToZero` |
| anything else | `NoMatchingProvisioner`, with the closest candidate and what differs |

The list of jobs has no type of provisioner, such as Terraform, so that a job that waits for another type counts as
served.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.api.jobs import UnservedJobs
from coder_k8s.api.reasons import Reason
from coder_k8s.coderd.types import Organization, ProvisionerJob
from coder_k8s.controllers.candidates import Candidate, Obstacle, can_run, nearest, rejection, shortened, shown
from coder_k8s.controllers.report import Outcome
from coder_k8s.controllers.tags import UNTAGGED, covers, is_user_scoped, own_tags

JOBS_SERVED = ControlPlaneCondition.JOBS_SERVED
REPORTED_AFTER = timedelta(minutes=1)
FAILS_AFTER = timedelta(minutes=30)
"""coderd fails a job that waits for so long."""
MAX_ENTRIES = 10
MAX_TAG_SETS = 200
"""Different tags of waiting jobs that are considered, the oldest first."""
MAX_TAGS = 20
"""Tags of one entry of the status: users choose them."""


class Queue(NamedTuple):
    """The jobs of an organization, and who could run them."""

    organization: Organization
    jobs: Sequence[ProvisionerJob]
    candidates: Sequence[Candidate]


class Group(msgspec.Struct, frozen=True):
    """Waiting jobs of an organization with the same tags that no candidate can run."""

    queue: Queue
    tags: Mapping[str, str]
    count: int
    oldest: datetime


def waiting(queue: Queue) -> list[Group]:
    """The jobs that no candidate can run, however long they wait."""
    return [Group(queue, tags, len(created), min(created)) for tags, created in _unserved(queue)]


def _unserved(queue: Queue) -> list[tuple[Mapping[str, str], list[datetime]]]:
    """The tags of jobs that no candidate can run, and when these jobs were created; only some of very many tags."""
    jobs: dict[frozenset[tuple[str, str]], list[datetime]] = {}
    for job in sorted((job for job in queue.jobs if job.waits), key=lambda job: job.created_at):
        tags = frozenset(job.tags.items())
        if tags in jobs or len(jobs) < MAX_TAG_SETS:
            jobs.setdefault(tags, []).append(job.created_at)
    able = [each for each in queue.candidates if each.obstacle is None]
    return [
        (dict(tags), created)
        for tags, created in jobs.items()
        if not any(can_run(each, wanted) for wanted in [dict(tags)] for each in able)
    ]


def overdue(queues: Iterable[Queue], now: datetime) -> list[Group]:
    """The jobs to report, the oldest first: only those that wait for a minute."""
    due = [
        queue._replace(jobs=[job for job in queue.jobs if now - job.created_at >= REPORTED_AFTER]) for queue in queues
    ]
    found = [group for queue in due for group in waiting(queue)]
    return sorted(found, key=lambda group: (group.oldest, group.queue.organization.name, sorted(group.tags.items())))


def next_due(queues: Iterable[Queue], now: datetime) -> float | None:
    """Seconds until a job that no candidate can run has to be reported; `None` if there is none."""
    left = [
        (at + REPORTED_AFTER - now).total_seconds()
        for queue in queues
        for _, created in _unserved(queue)
        for at in created
    ]
    return min((each for each in left if each > 0), default=None)


def entry(group: Group) -> UnservedJobs:
    """The entry of the status."""
    tags = sorted(own_tags(group.tags).items())[:MAX_TAGS]
    return UnservedJobs(
        organization_name=shortened(group.queue.organization.name),
        tags={shortened(name): shortened(value) for name, value in tags},
        user_scoped=is_user_scoped(group.tags),
        count=group.count,
        oldest=group.oldest.replace(microsecond=0),
    )


def judge(groups: Sequence[Group], unread: Outcome | None) -> Outcome:
    """The condition `JobsServed`; `unread` if not all of the jobs could be read."""
    if not groups:
        served = Outcome(JOBS_SERVED, True, reasons.ALL_SERVED, "A provisioner can run each waiting job")
        return (unread or served)._replace(satisfied=True)
    reason, message = explain(groups[0])
    if others := len(groups) - 1:
        noun = "set of tags" if others == 1 else "sets of tags"
        message = f"{message}; {others} more {noun} without a provisioner: see status.unservedJobs"
    return Outcome(JOBS_SERVED, False, reason, message, satisfied=True)


def explain(group: Group) -> tuple[Reason, str]:
    """Why nobody runs these jobs, and what to do before Coder fails them.

    | the jobs | the message names |
    |---|---|
    | have the tags of a provisioner that is scaled to zero | it |
    | have the tags of a provisioner that is stalled, or of a daemon that is offline | it |
    | have no tags | the rule that only provisioners without tags run them |
    | have `scope=user` | the rule that only daemons of their owner run them |
    | any other | the closest candidate and the tags that differ |
    """
    candidates, tags, what = group.queue.candidates, group.tags, _describe(group)
    when = f"before Coder fails the oldest job at {(group.oldest + FAILS_AFTER).astimezone(UTC):%Y-%m-%dT%H:%MZ}"
    matching = sorted((each for each in candidates if covers(each.tags, tags)), key=lambda each: not each.managed)
    zero = [each for each in matching if each.obstacle is Obstacle.SCALED_TO_ZERO]
    if zero:
        advice = f"{zero[0].name} has these tags, but is scaled to zero. Scale it up"
        return reasons.PROVISIONER_SCALED_TO_ZERO, f"{what}; {advice} {when}"
    if matching:
        advice = f"{matching[0].name} has these tags, but {matching[0].obstacle}. Fix it"
    elif is_user_scoped(tags):
        advice = "only a daemon of the same owner runs such jobs. Start one, or remove the tag scope from the template"
    elif tags == UNTAGGED:
        advice = "only a provisioner without tags runs such jobs, and there is none. Provide one"
    else:
        advice = f"{closest(candidates, tags)}. Provide a provisioner with these tags"
    return reasons.NO_MATCHING_PROVISIONER, f"{what}; {advice} {when}"


def _describe(group: Group) -> str:
    noun, needs, have = ("job", "needs", "has") if group.count == 1 else ("jobs", "need", "have")
    what = f"{have} no tags" if group.tags == UNTAGGED else f"{needs} {need(group.tags)}"
    return f"{group.count} {noun} in organization {group.queue.organization.name} {what}"


def need(tags: Mapping[str, str]) -> str:
    """The tags that a provisioner needs, for a message."""
    return ", ".join(filter(None, (shown(tags), "scope=user" if is_user_scoped(tags) else "")))


def closest(candidates: Sequence[Candidate], tags: Mapping[str, str]) -> str:
    """The candidate that differs least, and how."""
    found = nearest(candidates, tags)
    if found is None:
        return "the organization has no provisioner"
    return f"the closest, {found.name}, {rejection(found, tags)}"
