"""What the status records of a template in coderd, and whether it still is as recorded."""

from datetime import datetime

from coder_k8s.api import reasons
from coder_k8s.api.template import (
    ActiveVersion,
    CoderTemplate,
    FailedVersion,
    ImportingVersion,
    SourceRevision,
    TemplateStatus,
)
from coder_k8s.coderd.errors import sanitize
from coder_k8s.controllers.report import Outcome

from .identity import template_name
from .importer import Result
from .outcomes import IN_SYNC
from .settings import listed
from .sources import Summary
from .versions import Absent, Fail, Found, Hold, Keep, Observe, Recorded, Retry, Version, Wait, is_drifted
from .views import Target, View, ViewReader


def has_template(template: CoderTemplate) -> bool:
    """Whether there is, or may be, a template of this object in coderd."""
    return bool(template.status.template_id or template.status.importing)


def is_shown(result: Result) -> bool:
    """Whether the template belongs to the object, or is observed by it."""
    return result.view.template is not None and (result.view.owned or isinstance(result.step, Observe))


async def record_in(
    status: TemplateStatus, result: Result, target: Target, source: Summary, views: ViewReader, now: datetime
) -> None:
    """Record the result of a reconcile in the draft of a status."""
    found, step = result.view.found, result.step
    status.source = SourceRevision(revision=source.revision, digest=source.digest)
    status.promoted_version = result.promoted
    if found is None or not is_shown(result):
        status.active_version = None
        status.template_id = status.template_id if isinstance(step, Absent) else ""
    else:
        status.template_id = found.id if found.owned else ""
        status.active_version = await _active(status.active_version, target, found, result.view, views)
    status.importing = _importing(status, step.version, now) if isinstance(step, Wait | Hold | Retry) else None
    if isinstance(step, Fail):
        status.failed = _failed(step.version)
    elif isinstance(step, Keep | Hold):
        status.failed = None


def in_sync(template: CoderTemplate, result: Result, changed: tuple[str, ...], status: TemplateStatus) -> Outcome:
    """Whether Coder has what this object describes; `changed` are settings that someone changed there.

    | the template | condition |
    |---|---|
    | is not there yet, or belongs to another owner | False, `SyncPending` |
    | was deleted, or has another active version or other settings, and that is only reported | False, `Drifted` |
    | any other | True, `InSync` |
    """
    name, found = template_name(template), result.view.found
    differences = [f"its settings differ: {listed(changed)}"] if changed else []
    if isinstance(result.step, Absent):
        differences = ["it does not exist"]
    elif found is None or not is_shown(result):
        return Outcome(IN_SYNC, False, reasons.SYNC_PENDING, f"Template {name} is not in Coder yet", satisfied=True)
    elif is_drifted(Recorded(found.id, result.promoted), found) or _is_other(result, status):
        active = status.active_version
        differences.insert(0, f"version {active.name or active.id if active else found.active} is active")
    if differences:
        message = f"Template {name} in Coder is not as this object describes: {' and '.join(differences)}"
        return Outcome(IN_SYNC, False, reasons.DRIFTED, message, satisfied=True)
    return Outcome(IN_SYNC, True, reasons.IN_SYNC, f"Template {name} in Coder is as this object describes")


def _is_other(result: Result, status: TemplateStatus) -> bool:
    """Whether an observed template has another active version than that of the source."""
    active, source = status.active_version, status.source
    return isinstance(result.step, Observe) and (active is None or source is None or active.digest != source.digest)


async def _active(
    known: ActiveVersion | None, target: Target, found: Found, view: View, views: ViewReader
) -> ActiveVersion:
    """The active version, with its name."""
    for each in view.versions:
        if each.id == found.active:
            return ActiveVersion(id=each.id, name=each.name, digest=each.digest)
    if known is not None and known.id == found.active:
        return known
    return ActiveVersion(id=found.active, name=sanitize(await views.name_of(target, found.active)))


def _importing(status: TemplateStatus, version: Version, now: datetime) -> ImportingVersion:
    known = status.importing
    since = known.since if known is not None and known.id == version.id else now.replace(microsecond=0)
    return ImportingVersion(id=version.id, name=version.name, digest=version.digest, since=since)


def _failed(version: Version) -> FailedVersion:
    return FailedVersion(
        id=version.id,
        name=version.name,
        digest=version.digest,
        message=sanitize(version.error) or f"the job was {version.status}",
        code=version.error_code,
    )
