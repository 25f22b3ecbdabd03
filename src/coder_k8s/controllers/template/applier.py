"""Applies the settings and the access of the spec to a template in coderd."""

import msgspec

from coder_k8s.api import events, reasons
from coder_k8s.api.template import TEMPLATE, CoderTemplate
from coder_k8s.api.template_settings import Access
from coder_k8s.coderd import errors
from coder_k8s.coderd.templates import ManagedTemplate
from coder_k8s.controllers.answers import AnswerCache, Throttled
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.queries import CoderdQueries
from coder_k8s.controllers.report import Outcome
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key

from .access import FEATURE as ACCESS
from .access import AccessPlan, Entry, explain_access, plan_access
from .identity import template_name
from .metrics import TemplateMetrics
from .outcomes import SETTINGS_APPLIED
from .settings import SettingsPlan, entitled_features, explain, listed, plan, settings
from .views import Target

REJECTION_VALID = 3600.0
"""Seconds for which settings that Coder rejected are not sent again, unless the object changes."""

CONSUMER, MIN_RETRY = Consumer.TEMPLATES, 5.0
KNOWN = {str(each): each for each in (reasons.SETTINGS_APPLIED, reasons.NOT_ENTITLED, reasons.SETTINGS_REJECTED)}
"""Results that stay valid while the access cannot be read."""


class Applied(msgspec.Struct, frozen=True):
    """The condition about settings and access, and the fields that someone changed in Coder."""

    outcome: Outcome
    drifted: tuple[str, ...] = ()
    retry: float | None = None
    """Seconds until the access, which is not known yet, may be read."""


NO_TEMPLATE = Applied(
    Outcome(SETTINGS_APPLIED, False, reasons.SYNC_PENDING, "Waiting for the template", satisfied=True)
)


class SettingsApplier:
    """Keeps settings and access of templates."""

    def __init__(self, context: Context[CoderTemplate], metrics: TemplateMetrics) -> None:
        self._queries = context.runtime.queries
        self._recorder = context.recorder
        self._metrics = metrics
        self._rejected = AnswerCache[Outcome](context.now)

    def forget(self, key: Key) -> None:
        self._rejected.forget(key)

    async def apply(self, template: CoderTemplate, target: Target, found: ManagedTemplate | None) -> Applied:
        """Apply what differs, unless it is only to be reported."""
        if found is None:
            return NO_TEMPLATE
        entitled = await entitled_to(self._queries, template, target)
        applied = await self._apply_settings(template, target, found, entitled)
        if template.spec.access is None or ACCESS not in entitled:
            return applied
        try:
            access = await self._apply_access(template, target, found)
        except Throttled:
            outcome = _last_outcome(template) if applied.outcome.status else applied.outcome
            return Applied(outcome, applied.drifted, max(MIN_RETRY, self._queries.wait(target.coderd, CONSUMER)))
        outcome = applied.outcome if access.outcome.status or applied.outcome.stalled else access.outcome
        return Applied(outcome, (*applied.drifted, *access.drifted))

    async def _apply_settings(
        self, template: CoderTemplate, target: Target, found: ManagedTemplate, entitled: frozenset[str]
    ) -> Applied:
        wanted = _plan(template, found, entitled)
        if wanted.body is None:
            return Applied(_outcome(template, wanted))
        drifted = _was_applied(template)
        if template.spec.management_policy == "Observe" or (drifted and template.spec.drift == "Report"):
            return Applied(_outcome(template, wanted), wanted.changed)
        about = (template.metadata.uid, template.metadata.generation, wanted.changed)
        if (rejected := self._rejected.get(template.key, about)) is None:
            rejected = await self._send(template, target, found.id, entitled, drifted=drifted)
            if rejected is not None:
                self._rejected.keep(template.key, about, rejected, REJECTION_VALID)
        return Applied(rejected or _outcome(template, wanted))

    async def _send(
        self, template: CoderTemplate, target: Target, template_id: str, entitled: frozenset[str], *, drifted: bool
    ) -> Outcome | None:
        """Change the template as it is now; returns why Coder did not apply it, if it did not."""
        current = await target.coderd.template(template_id)
        wanted = _plan(template, current, entitled)
        if wanted.body is None:
            return None
        name, fields = template_name(template), listed(wanted.changed)
        try:
            await target.coderd.update_template(current.id, wanted.body)
        except (errors.Invalid, errors.Conflict) as error:
            message = f"Coder rejects settings of template {name}; correct {fields}: {error}"
            return Outcome(SETTINGS_APPLIED, False, reasons.SETTINGS_REJECTED, message, stalled=True)
        finally:
            self._queries.forget_templates(target.coderd, target.organization)
        left = _plan(template, await target.coderd.template(current.id), entitled)
        if left.body is not None:
            message = f"Coder accepted settings of template {name} but did not apply them: {listed(left.changed)}"
            return Outcome(SETTINGS_APPLIED, False, reasons.SETTINGS_REJECTED, message, stalled=True)
        event, verb = (events.DRIFT_REVERTED, "Changed back") if drifted else (events.TEMPLATE_UPDATED, "Changed")
        self._recorder.record(TEMPLATE, template, event, f"{verb} {fields} of template {name}")
        if drifted:
            self._metrics.count_revert(template.key)
        return None

    async def _apply_access(self, template: CoderTemplate, target: Target, found: ManagedTemplate) -> Applied:
        """Set and remove roles; the list of roles is up to 10 minutes old."""
        wanted = await self._plan_access(template, target, found.id)
        name, drifted = template_name(template), _was_applied(template)
        if wanted.body is not None:
            only_reported = template.spec.management_policy == "Observe" or (
                drifted and template.spec.drift == "Report"
            )
            if only_reported:
                return Applied(_access_outcome(template, wanted), ("access",))
            self._queries.forget_roles(target.coderd, found.id)
            wanted = await self._plan_access(template, target, found.id)
        if wanted.body is not None:
            await target.coderd.update_template_roles(found.id, wanted.body)
            self._queries.forget_roles(target.coderd, found.id)
            event = events.DRIFT_REVERTED if drifted else events.TEMPLATE_UPDATED
            note = f"Changed access of template {name}: {listed(wanted.changed)}"
            self._recorder.record(TEMPLATE, template, event, note)
            if drifted:
                self._metrics.count_revert(template.key)
        return Applied(_access_outcome(template, wanted))

    async def _plan_access(self, template: CoderTemplate, target: Target, template_id: str) -> AccessPlan:
        access, coderd = template.spec.access or Access(), target.coderd
        roles = await self._queries.template_roles(coderd, template_id)
        groups = await self._queries.groups(coderd, target.organization) if access.groups else {}
        users = {each.name: await self._queries.user_id(coderd, each.name) for each in access.users}
        return plan_access(
            access,
            target.organization,
            ({each.id: Entry(each.name, each.role) for each in roles.group}, groups),
            ({each.id: Entry(each.username, each.role) for each in roles.users}, users),
        )


async def entitled_to(queries: CoderdQueries, template: CoderTemplate, target: Target) -> frozenset[str]:
    """The features of the license, if the spec has something that needs one."""
    licensed = any(each.feature for each in settings(template.spec.settings).values())
    if not licensed and template.spec.access is None:
        return frozenset()
    try:
        return entitled_features(await queries.entitlements(target.coderd))
    except errors.NotSupported:
        return frozenset()  # a build without enterprise features


def _plan(template: CoderTemplate, found: ManagedTemplate, entitled: frozenset[str]) -> SettingsPlan:
    made = plan(template.spec.settings, found.settings, entitled, template_name(template))
    if template.spec.access is not None and ACCESS not in entitled:
        return made._replace(not_entitled=(*made.not_entitled, "access"))
    return made


def _outcome(template: CoderTemplate, wanted: SettingsPlan) -> Outcome:
    if problem := explain(wanted):
        return Outcome(SETTINGS_APPLIED, False, reasons.NOT_ENTITLED, problem, satisfied=True)
    message = f"Template {template_name(template)} has the settings of the spec"
    return Outcome(SETTINGS_APPLIED, True, reasons.SETTINGS_APPLIED, message)


def _access_outcome(template: CoderTemplate, wanted: AccessPlan) -> Outcome:
    if problem := explain_access(wanted):
        return Outcome(SETTINGS_APPLIED, False, reasons.SETTINGS_REJECTED, problem, stalled=True)
    return _outcome(template, SettingsPlan())


def _last_outcome(template: CoderTemplate) -> Outcome:
    """The result for this generation of the spec from before, such as from before the operator restarted."""
    known = find(template.status.conditions, SETTINGS_APPLIED)
    if known is None or known.observed_generation != template.metadata.generation or known.reason not in KNOWN:
        message = f"Waiting to read the access of template {template_name(template)}: the operator limits its requests"
        return Outcome(SETTINGS_APPLIED, None, reasons.RATE_LIMITED, message)
    rejected = known.reason == reasons.SETTINGS_REJECTED
    return Outcome(
        SETTINGS_APPLIED, known.is_true, KNOWN[known.reason], known.message, satisfied=not rejected, stalled=rejected
    )


def _was_applied(template: CoderTemplate) -> bool:
    """Whether Coder had the settings of this generation before, so that a difference is a change by someone else."""
    return _last_outcome(template).reason in (reasons.SETTINGS_APPLIED, reasons.NOT_ENTITLED)
