"""The steps that bring a CoderTemplate to its desired state, in order."""

from datetime import datetime

from coder_k8s.api import reasons
from coder_k8s.api.reasons.template import TemplateCondition
from coder_k8s.api.template import CoderTemplate, SourceRevision, TemplateStatus
from coder_k8s.coderd import errors
from coder_k8s.controllers.answers import AnswerCache, Recheck, Throttled
from coder_k8s.controllers.cleanup import TEMPLATE_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.explanations import Explanation, explain
from coder_k8s.controllers.labels import PROMOTE, adopts
from coder_k8s.controllers.queries import INTERVAL
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.report import READY, Outcome, StatusReport
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.conditions import find
from coder_k8s.kube.finalizers import FinalizerRefused
from coder_k8s.kube.objects import Key

from .applier import REJECTION_VALID, SettingsApplier
from .deletion import Deletion
from .identity import template_name
from .importer import Importer, Result, UploadLimited
from .metrics import TemplateMetrics
from .outcomes import ERRORS, IMPORTED, NotApplied, version_outcomes, waiting_for_upload
from .records import has_template, in_sync, is_shown, record_in
from .resolver import NotAvailable, TargetResolver
from .sources import SourceError, SourceReader, Summary
from .versions import Retry, Wait
from .views import POLL

SOURCE_READY = TemplateCondition.SOURCE_READY
USER_ERRORS = (reasons.SOURCE_MISSING, reasons.SOURCE_INVALID, reasons.SECRET_MISSING)
UPLOAD_RETRY = 10.0
SOURCE_RETRY = 30.0
Report = StatusReport[TemplateStatus]


class TemplateSteps(Steps[CoderTemplate, TemplateStatus]):
    """Brings one CoderTemplate at a time to its desired state."""

    conditions = frozenset(TemplateCondition)

    def __init__(self, context: Context[CoderTemplate], metrics: TemplateMetrics) -> None:
        self._now = context.now
        self._finalizers = context.finalizers
        self._metrics = metrics
        self._sources = SourceReader(context)
        self._resolver = TargetResolver(context)
        self._importer = Importer(context, self._sources, self._metrics)
        self._applier = SettingsApplier(context, self._metrics)
        self._failures = AnswerCache[Outcome](context.now, Backoff(2.0, 120.0, context.runtime.rng.random))
        deletion = Deletion(context, self._resolver, self._importer.views)
        self.finalize = {TEMPLATE_FINALIZER: deletion.clean_up}

    async def forget(self, key: Key) -> None:
        self._metrics.forget(key)
        self._sources.forget(key)
        self._importer.forget(key)
        self._applier.forget(key)
        self._failures.forget(key)

    def needs(self, finalizer: str, template: CoderTemplate) -> bool:  # noqa: ARG002
        spec = template.spec
        return spec.deletion_policy == "Delete" and spec.management_policy == "Full" and has_template(template)

    async def steps(self, template: CoderTemplate, report: Report) -> CoderTemplate:
        report.status.phase = report.status.phase or "Pending"
        try:
            source = await self._sources.summary(template)
        except SourceError as error:
            return self._without_source(template, error, report)
        report.status.source = SourceRevision(revision=source.revision, digest=source.digest)
        found = f"The source has revision {source.revision}"
        report.add(SOURCE_READY, True, reasons.SOURCE_READY, found)
        try:
            return await self._reconcile(template, source, report)
        except NotAvailable as error:
            self._without_coderd(template, source, error, report)
        except NotApplied as error:
            outcome = explain(error, ERRORS, **_names(template)).outcome
            self._failures.keep(template.key, _subject(template, source), outcome, REJECTION_VALID)
            self._report_failure(template, outcome, report)
        except Throttled:
            self._throttled(template, source, report)
        except errors.CoderdError as error:
            self._failed(template, source, explain(error, ERRORS, **_names(template)), report)
        except FinalizerRefused as error:
            refused = Outcome(IMPORTED, False, reasons.FORBIDDEN, str(error), stalled=True)
            self._failed(template, source, Explanation(refused, Recheck.STEADY), report)
        return template

    async def _reconcile(self, template: CoderTemplate, source: Summary, report: Report) -> CoderTemplate:
        if self.needs(TEMPLATE_FINALIZER, template):
            template = await self._finalizers.add(template, TEMPLATE_FINALIZER)
        target = await self._resolver.wanted(template)
        if (failure := self._failures.get(template.key, _subject(template, source))) is not None:
            self._report_failure(template, failure, report)
            return template
        report.status.organization_id = target.organization
        try:
            result = await self._importer.run(template, target, source)
        except UploadLimited:
            for outcome in waiting_for_upload(template):
                report.add_outcome(outcome)
            report.retain_conditions = True
            report.requeue_after(UPLOAD_RETRY)
            return template
        template = result.template
        self._failures.forget(template.key)
        await record_in(report.status, result, target, source, self._importer.views, self._now())
        applied = await self._applier.apply(template, target, result.view.template if is_shown(result) else None)
        for outcome in version_outcomes(template, result.step):
            report.add_outcome(outcome)
        report.add_outcome(in_sync(template, result, applied.drifted, report.status))
        report.add_outcome(applied.outcome)
        if applied.retry is not None:
            report.requeue_after(applied.retry)
        report.status.phase = "Ready" if is_shown(result) else "Pending"
        report.requeue_after(_requeue(result, self._now()))
        return template

    def _without_source(self, template: CoderTemplate, error: SourceError, report: Report) -> CoderTemplate:
        """Report why there is no source. The template in Coder stays as it is."""
        report.retain_conditions = True
        report.add(SOURCE_READY, False, error.reason, error.message, stalled=error.reason in USER_ERRORS)
        waiting = SOURCE_RETRY if error.reason == reasons.SOURCE_NOT_READY else INTERVAL.total_seconds()
        report.requeue_after(error.retry or waiting)
        return template

    def _without_coderd(self, template: CoderTemplate, source: Summary, error: NotAvailable, report: Report) -> None:
        """Report why coderd is not queried. If nothing is wrong, a template that was Ready stays Ready."""
        report.retain_conditions = True
        report.requeue_after(INTERVAL.total_seconds())
        if error.paused and _is_concluded(template, source):
            report.retain(IMPORTED, error.outcome.reason, error.outcome.message)
        else:
            report.add_outcome(error.outcome)

    def _throttled(self, template: CoderTemplate, source: Summary, report: Report) -> None:
        """Wait for the operator's own limit of requests. If nothing changed, the conditions stay as they are."""
        report.retain_conditions = True
        report.requeue_after(SOURCE_RETRY)
        status, ready = template.status, find(template.status.conditions, READY)
        changed = status.observed_generation != template.metadata.generation or source.digest != _digest(template)
        if ready is not None and ready.is_true and not changed:
            return
        message = "Waiting to query CoderControlPlane {plane}: the operator limits its requests"
        report.add(IMPORTED, None, reasons.RATE_LIMITED, message.format(**_names(template)))

    def _failed(self, template: CoderTemplate, source: Summary, failure: Explanation, report: Report) -> None:
        outcome, recheck, retry_after = failure
        self._failures.fail(template.key, _subject(template, source), outcome, recheck, retry_after)
        self._report_failure(template, outcome, report)

    def _report_failure(self, template: CoderTemplate, outcome: Outcome, report: Report) -> None:
        report.retain_conditions = True
        report.add_outcome(outcome)
        report.requeue_after(max(1.0, self._failures.left(template.key)))


def _names(template: CoderTemplate) -> dict[str, str]:
    """The names for messages about errors."""
    return {"plane": template.spec.control_plane_ref.name, "template": template_name(template)}


def _subject(template: CoderTemplate, source: Summary) -> tuple[object, ...]:
    """What an error is about; a change of it is tried at once."""
    promote = template.metadata.annotations.get(PROMOTE)
    return template.metadata.uid, template.metadata.generation, source.digest, adopts(template), promote


def _digest(template: CoderTemplate) -> str:
    """The digest of the source that was reconciled last."""
    return template.status.source.digest if template.status.source is not None else ""


def _is_concluded(template: CoderTemplate, source: Summary) -> bool:
    """Whether the object was Ready with this generation and this source."""
    ready, active = find(template.status.conditions, READY), template.status.active_version
    if ready is None or not ready.is_true or ready.observed_generation != template.metadata.generation:
        return False
    return active is not None and active.digest == source.digest


def _requeue(result: Result, now: datetime) -> float:
    match result.step:
        case Wait():
            return POLL.total_seconds()
        case Retry(_, at):
            return max(1.0, (at - now).total_seconds()) if at else 30.0
    return INTERVAL.total_seconds()
