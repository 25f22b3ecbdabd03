"""Maps the version of a template, and errors of coderd, to conditions."""

from typing import NamedTuple

from coder_k8s.api import reasons
from coder_k8s.api.reasons.template import TemplateCondition
from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import sanitize
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.explanations import Explanation, Explanations
from coder_k8s.controllers.labels import ADOPT, PROMOTE
from coder_k8s.controllers.report import Outcome

from .identity import MISSING_VARIABLES, template_name
from .versions import Absent, Fail, Hold, Keep, NameConflict, Observe, Retry, Step, Version, Wait

IMPORTED = TemplateCondition.IMPORTED
PROMOTED = TemplateCondition.PROMOTED
IN_SYNC = TemplateCondition.IN_SYNC
SETTINGS_APPLIED = TemplateCondition.SETTINGS_APPLIED
CANCELED = "the job was canceled"
"""The error of a version in the status."""


class NotApplied(errors.Invalid):
    """coderd accepted a change that has no effect; to repeat it would not help."""


ERRORS: Explanations = {
    errors.Unauthorized: Explanation(
        Outcome(
            IMPORTED,
            False,
            reasons.CREDENTIALS_REJECTED,
            "CoderControlPlane {plane} rejects the operator's token; see its condition OperatorAccessReady: {error}",
        )
    ),
    errors.Forbidden: Explanation(
        Outcome(
            IMPORTED,
            False,
            reasons.FORBIDDEN,
            "The operator's user of CoderControlPlane {plane} cannot manage templates; assign the role Owner or "
            "Template Admin: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Invalid: Explanation(
        Outcome(
            IMPORTED,
            False,
            reasons.VERSION_REJECTED,
            "Coder rejects template {template}; correct its name, source, variables or tags: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    NotApplied: Explanation(
        Outcome(
            IMPORTED,
            False,
            reasons.VERSION_REJECTED,
            "CoderControlPlane {plane} accepted a change of template {template} but did not apply it: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.RateLimited: Explanation(
        Outcome(IMPORTED, None, reasons.RATE_LIMITED, "CoderControlPlane {plane} limits the request rate: {error}"),
        Recheck.BACKOFF,
    ),
    errors.CoderdError: Explanation(
        Outcome(IMPORTED, None, reasons.CODER_UNAVAILABLE, "Request to CoderControlPlane {plane} failed: {error}"),
        Recheck.BACKOFF,
    ),
}


class Outcomes(NamedTuple):
    """The conditions about the version of a template."""

    imported: Outcome
    promoted: Outcome


def version_outcomes(template: CoderTemplate, step: Step) -> Outcomes:
    """The conditions after a step that needs no change."""
    name = template_name(template)
    match step:
        case NameConflict(claimed_by) if claimed_by:
            message = (
                f"CoderTemplate {claimed_by} manages template {name} in Coder; rename this object's template, or "
                "delete one of the objects"
            )
            taken = Outcome(IMPORTED, False, reasons.NAME_TAKEN, message, stalled=True)
            return Outcomes(taken, _pending(f"Template {name} belongs to CoderTemplate {claimed_by}"))
        case NameConflict():
            message = (
                f"Coder already has a template named {name} that this object did not create; rename this object, "
                f'delete the template in Coder, or take it over with the annotation {ADOPT}: "true"'
            )
            taken = Outcome(IMPORTED, False, reasons.NAME_TAKEN, message, stalled=True)
            return Outcomes(taken, _pending(f"Template {name} belongs to another owner"))
        case Absent():
            absent = f"Coder has no template {name}, and none is created"
            return Outcomes(
                Outcome(IMPORTED, False, reasons.NOT_MANAGED, absent, satisfied=True),
                Outcome(PROMOTED, False, reasons.NOT_MANAGED, absent, satisfied=True),
            )
        case Observe():
            observed = f"Template {name} is only observed"
            return Outcomes(
                Outcome(IMPORTED, None, reasons.NOT_MANAGED, observed, satisfied=True),
                Outcome(PROMOTED, None, reasons.NOT_MANAGED, observed, satisfied=True),
            )
        case Keep(version):
            active = Outcome(PROMOTED, True, reasons.PROMOTED, f"Version {version.name} is the active version")
            return Outcomes(_imported(version), active)
        case Hold(version):
            return Outcomes(_imported(version), _held(template, version))
        case Wait(version) | Retry(version, None):
            waiting = f"Waiting for the import of version {version.name}"
            return Outcomes(_waiting(template, version), _pending(waiting))
        case Retry(version, _):
            again = f"The import of version {version.name} failed and is repeated: {sanitize(version.error)}"
            return Outcomes(Outcome(IMPORTED, False, reasons.IMPORTING, again), _pending(again))
        case Fail(version):
            return Outcomes(_failed(version), _pending(f"The import of version {version.name} failed"))
    raise AssertionError(step)


def waiting_for_upload(template: CoderTemplate) -> Outcomes:
    message = f"Waiting to upload the files of template {template_name(template)}: uploads are limited to 6 per minute"
    return Outcomes(Outcome(IMPORTED, False, reasons.IMPORTING, message), _pending(message))


def _imported(version: Version) -> Outcome:
    return Outcome(IMPORTED, True, reasons.IMPORTED, f"Version {version.name} has the current source")


def _waiting(template: CoderTemplate, version: Version) -> Outcome:
    if version.served and version.status in ("pending", "running", "canceling"):
        state = "waits for a provisioner" if version.status == "pending" else "is being imported"
        return Outcome(IMPORTED, False, reasons.IMPORTING, f"Version {version.name} {state}")
    tags = ", ".join(f"{name}={value}" for name, value in sorted(template.spec.provisioner_tags.items()))
    needed = f"with the tags {tags}" if tags else "without tags"
    message = (
        f"No connected provisioner of organization {template.spec.organization_name} can import version "
        f"{version.name}; provide one {needed}, or correct provisionerTags"
    )
    return Outcome(IMPORTED, False, reasons.NO_MATCHING_PROVISIONER, message)


def _failed(version: Version) -> Outcome:
    missing = version.error_code == MISSING_VARIABLES
    error = sanitize(version.error) or f"the job was {version.status}"
    if error == CANCELED:
        message = (
            f"The import of version {version.name} was canceled in Coder; it is imported again when the source, "
            "variables or provisionerTags change"
        )
        return Outcome(IMPORTED, False, reasons.IMPORT_FAILED, message, stalled=True)
    reason = reasons.VARIABLES_MISSING if missing else reasons.IMPORT_FAILED
    fix = "set the missing variables in variables" if missing else "correct the template"
    message = f"The import of version {version.name} failed; {fix}: {error}"
    return Outcome(IMPORTED, False, reason, message, stalled=True)


def _held(template: CoderTemplate, version: Version) -> Outcome:
    if template.spec.promotion.policy == "Manual":
        return _pending(
            f"Version {version.name} is imported; make it active with the annotation {PROMOTE}: {version.name}",
            satisfied=True,
        )
    return _pending(f"Version {version.name} is not active, because drift is only reported", satisfied=True)


def _pending(message: str, *, satisfied: bool = False) -> Outcome:
    return Outcome(PROMOTED, False, reasons.PROMOTION_PENDING, message, satisfied=satisfied)
