"""Reports jobs and schedules that no provisioner serves: conditions, status, events and metrics."""

from collections.abc import Sequence

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.api.jobs import UnservedJobs
from coder_k8s.api.reasons import Reason
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.controlplane.health.watcher import WAITING, Surroundings, is_enabled
from coder_k8s.controllers.controlplane.outcomes import MISSING_ROLE, OWNER_ROLE, REJECTED_TOKEN
from coder_k8s.controllers.controlplane.tokens import secret_reference
from coder_k8s.controllers.explanations import Explanation, Explanations, explain
from coder_k8s.controllers.report import Outcome, StatusReport, sentence
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key

from . import schedules, unserved
from .metrics import JobMetrics
from .reader import Failure, Reader, Reading, is_incomplete
from .schedules import SCHEDULES_SERVED
from .unserved import JOBS_SERVED, Group

RETRY = 30.0
"""Seconds until the next reconcile while something is wrong."""
INCOMPLETE = "Not all organizations and templates are read yet"


class JobsWatcher:
    """Queries coderd every minute, more often while jobs wait that nobody can run."""

    def __init__(self, context: Context[CoderControlPlane]) -> None:
        self._recorder = context.recorder
        self._now = context.now
        self._reader = Reader(context.runtime.queries)
        self._metrics = JobMetrics(context.runtime.metrics.registry)

    def forget(self, key: Key) -> None:
        self._metrics.forget(key)

    def retain(
        self, plane: CoderControlPlane, reason: Reason, message: str, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        """Keep the conditions of a coderd that is not queried."""
        self.forget(plane.key)
        if is_enabled(plane):
            report.retain(JOBS_SERVED, reason, message)
            report.retain(SCHEDULES_SERVED, reason, message)

    async def check(
        self,
        plane: CoderControlPlane,
        coderd: Coderd | None,
        surroundings: Surroundings,
        report: StatusReport[ControlPlaneStatus],
    ) -> None:
        if not is_enabled(plane):
            self.forget(plane.key)
            report.status.unserved_jobs = []
        elif coderd is None or not surroundings.ready:
            self.forget(plane.key)
            for type_ in (JOBS_SERVED, SCHEDULES_SERVED):
                report.add(type_, None, reasons.PENDING, WAITING, satisfied=True)
        else:
            reading = await self._reader.read(coderd, surroundings.provisioners)
            groups = self._report(plane, reading, report)
            report.requeue_after(self._requeue_after(coderd, reading, groups))

    def _report(
        self, plane: CoderControlPlane, reading: Reading, report: StatusReport[ControlPlaneStatus]
    ) -> list[Group]:
        groups = unserved.overdue(reading.queues, self._now())
        skipped = schedules.skipped(reading.schedules)
        jobs = unserved.judge(groups, _unread(plane, reading.jobs_failure, JOBS_ERRORS))
        scheduled = schedules.judge(skipped, _unread(plane, reading.templates_failure, TEMPLATE_ERRORS))
        if jobs.status is not None:  # otherwise the last known ones stay
            entries = [unserved.entry(group) for group in groups[: unserved.MAX_ENTRIES]]
            self._record_jobs(plane, groups, entries)
            report.status.unserved_jobs = entries
        self._record_schedules(plane, scheduled)
        report.add_outcome(jobs)
        report.add_outcome(scheduled)
        organizations = [queue.organization.name for queue in reading.queues]
        self._metrics.set(plane.key, organizations, groups, skipped)
        return groups

    def _requeue_after(self, coderd: Coderd, reading: Reading, groups: Sequence[Group]) -> float:
        """Seconds until an answer is too old, or a job has waited for a minute."""
        delays = [self._reader.next_read(coderd, reading.queues)]
        if groups or reading.jobs_failure or reading.templates_failure:
            delays.append(RETRY)
        if (due := unserved.next_due(reading.queues, self._now())) is not None:
            delays.append(max(due, 1.0))
        return min(delays)

    def _record_jobs(self, plane: CoderControlPlane, groups: Sequence[Group], entries: Sequence[UnservedJobs]) -> None:
        before = [_identity(each) for each in plane.status.unserved_jobs]
        for group, entry in zip(groups, entries, strict=False):
            if _identity(entry) not in before:
                self._recorder.record(CONTROL_PLANE, plane, events.JOBS_UNSERVED, unserved.explain(group)[1])
        if before and not entries:
            self._recorder.record(CONTROL_PLANE, plane, events.JOBS_SERVED, "A provisioner can run each waiting job")

    def _record_schedules(self, plane: CoderControlPlane, found: Outcome) -> None:
        before = find(plane.status.conditions, SCHEDULES_SERVED)
        was_skipped = before is not None and before.is_true is False
        if found.status is False and not (was_skipped and before and before.message == sentence(found.message)):
            self._recorder.record(CONTROL_PLANE, plane, events.SCHEDULES_SKIPPED, found.message)
        if found.status and was_skipped:
            self._recorder.record(CONTROL_PLANE, plane, events.SCHEDULES_SERVED, found.message)


def _identity(entry: UnservedJobs) -> tuple[str, dict[str, str], bool]:
    return entry.organization_name, entry.tags, entry.user_scoped


def _unread(plane: CoderControlPlane, failure: Failure | None, explanations: Explanations) -> Outcome | None:
    """The condition if not everything could be read."""
    if failure is None:
        return None
    if is_incomplete(failure):
        type_ = explanations[errors.CoderdError].outcome.type
        return Outcome(type_, None, reasons.PENDING, INCOMPLETE)
    secret = secret_reference(plane).name
    return explain(failure.error, explanations, secret=secret, what=failure.what).outcome


def _errors(type_: str, reason: Reason) -> Explanations:
    """What errors mean for one of the two conditions. Nothing is known, so none of them is False."""

    def unknown(message: str) -> Explanation:
        return Explanation(Outcome(type_, None, reason, message))

    forbidden = unknown(f"{{what}} could not be read: {MISSING_ROLE} may not do that: {OWNER_ROLE}")
    return {
        errors.Unauthorized: unknown(REJECTED_TOKEN),
        errors.Forbidden: forbidden,
        errors.NotFound: forbidden,
        errors.CoderdError: unknown("{what} could not be read from Coder: {error}"),
    }


JOBS_ERRORS = _errors(JOBS_SERVED, reasons.QUEUE_UNREADABLE)
TEMPLATE_ERRORS = _errors(SCHEDULES_SERVED, reasons.TEMPLATES_UNREADABLE)
