"""Maps errors of coderd and the state of the key to conditions."""

from datetime import datetime

from coder_k8s.api import CoderProvisioner, ProvisionerCondition, reasons
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.coderd import errors
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.explanations import Explanation, Explanations, explain
from coder_k8s.controllers.report import Outcome, StatusReport

from . import keys, records
from .objects import secret_name

BOOTSTRAP_SECRET_READY = ProvisionerCondition.BOOTSTRAP_SECRET_READY
DAEMONS_CONNECTED = ProvisionerCondition.DAEMONS_CONNECTED
ENTITLED = ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED
KEY_READY = ProvisionerCondition.PROVISIONER_KEY_READY
OPERATOR_ACCESS_READY = ProvisionerCondition.OPERATOR_ACCESS_READY

COMMON_ERRORS: Explanations = {
    errors.RateLimited: Explanation(Outcome(KEY_READY, None, reasons.RATE_LIMITED), Recheck.BACKOFF),
    errors.NotLicensed: Explanation(Outcome(ENTITLED, False, reasons.NOT_ENTITLED, stalled=True), Recheck.STEADY),
    errors.NotSupported: Explanation(Outcome(ENTITLED, False, reasons.NOT_SUPPORTED, stalled=True), Recheck.STEADY),
    errors.Unauthorized: Explanation(Outcome(OPERATOR_ACCESS_READY, False, reasons.TOKEN_REJECTED)),
}
KEY_ERRORS: Explanations = {
    **COMMON_ERRORS,
    errors.Forbidden: Explanation(
        Outcome(
            KEY_READY,
            False,
            reasons.FORBIDDEN,
            "The user of the token may not manage provisioner keys of organization {organization}: {error}. "
            "Give it the role Organization Admin there, or Owner.",
            stalled=True,
        )
    ),
    errors.NotFound: Explanation(
        Outcome(
            KEY_READY,
            False,
            reasons.ORGANIZATION_NOT_FOUND,
            "Coder has no organization {organization}, or hides it from the user of the token. Correct "
            "organizationName, or add the user to the organization.",
            stalled=True,
        )
    ),
    errors.Invalid: Explanation(Outcome(KEY_READY, False, reasons.FAILED, stalled=True), Recheck.STEADY),
    errors.CoderdError: Explanation(Outcome(KEY_READY, None, reasons.FAILED)),
}
DAEMON_ERRORS: Explanations = {
    **COMMON_ERRORS,
    errors.CoderdError: Explanation(
        Outcome(
            DAEMONS_CONNECTED,
            None,
            reasons.FAILED,
            "Coder does not list the daemons of organization {organization}: {error}",
        )
    ),
}
BOOTSTRAP_ERRORS: Explanations = {
    errors.Unauthorized: Explanation(Outcome(BOOTSTRAP_SECRET_READY, False, reasons.TOKEN_REJECTED, stalled=True))
}
"""With a token that a user provides, which the operator cannot renew."""
ENTITLEMENT_ERRORS: Explanations = {
    errors.NotSupported: Explanation(
        Outcome(ENTITLED, False, reasons.NOT_SUPPORTED, "This build of Coder has no entitlements", stalled=True),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(Outcome(ENTITLED, False, reasons.FORBIDDEN)),
    errors.Forbidden: Explanation(Outcome(ENTITLED, False, reasons.FORBIDDEN)),
    errors.CoderdError: Explanation(Outcome(ENTITLED, False, reasons.ENTITLEMENTS_QUERY_FAILED)),
}


def explain_error(provisioner: CoderProvisioner, error: errors.CoderdError, explanations: Explanations) -> Explanation:
    """Explain an error for a provisioner, whose token a user may provide."""
    given = BOOTSTRAP_ERRORS if provisioner.spec.bootstrap is not None else {}
    return explain(error, {**explanations, **given}, organization=records.organization_name(provisioner))


def report_key(
    provisioner: CoderProvisioner,
    wanted: keys.Wanted,
    step: keys.Keep | keys.Wait,
    report: StatusReport[ProvisionerStatus],
    now: datetime,
) -> None:
    """Report a key that needs no step now."""
    match step:
        case keys.Keep():
            report.add(KEY_READY, True, reasons.KEY_READY, records.described(provisioner))
            report.status.organization_id = wanted.organization
            report.status.organization_name = records.organization_name(provisioner)
            report.status.control_plane_url = wanted.url
            if (due := records.rotation_due(provisioner)) is not None:
                report.requeue_after(max(0.0, (due - now).total_seconds()))
        case keys.Wait(why, works=False):
            message = (
                f"{why}: {len(provisioner.status.retiring_keys)} keys were replaced and are not deleted yet, so the "
                f"next one has to wait. Find out what keeps changing the spec, or Secret {secret_name(provisioner)}."
            )
            report.add(KEY_READY, False, reasons.ROTATING, message)
            backoff_until = records.backoff_until(provisioner)
            report.requeue_after((backoff_until - now).total_seconds() if backoff_until is not None else 0.0)
        case keys.Wait(why):
            waiting = f"{why}: waiting for one of {len(provisioner.status.retiring_keys)} keys to retire"
            report.add(KEY_READY, True, reasons.ROTATING, waiting, satisfied=False)
