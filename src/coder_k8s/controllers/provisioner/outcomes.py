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

NOT_ENTITLED = (
    "The license of CoderControlPlane {plane} does not cover external provisioners; set one that does in its "
    "licenseSecretRef"
)

COMMON_ERRORS: Explanations = {
    errors.RateLimited: Explanation(
        Outcome(KEY_READY, None, reasons.RATE_LIMITED, "CoderControlPlane {plane} limits the request rate: {error}"),
        Recheck.BACKOFF,
    ),
    errors.NotLicensed: Explanation(
        Outcome(
            ENTITLED,
            False,
            reasons.NOT_ENTITLED,
            f"{NOT_ENTITLED}: {{error}}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.NotSupported: Explanation(
        Outcome(
            ENTITLED,
            False,
            reasons.NOT_SUPPORTED,
            "CoderControlPlane {plane} runs a build of Coder without external provisioners; set an image that has them",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(
        Outcome(
            OPERATOR_ACCESS_READY,
            False,
            reasons.TOKEN_REJECTED,
            "CoderControlPlane {plane} rejects the operator's token; see its condition OperatorAccessReady: {error}",
        )
    ),
}
KEY_ERRORS: Explanations = {
    **COMMON_ERRORS,
    errors.Forbidden: Explanation(
        Outcome(
            KEY_READY,
            False,
            reasons.FORBIDDEN,
            "{user} cannot manage provisioner keys of organization {organization}; assign the role Organization Admin "
            "in this organization, or Owner: {error}",
            stalled=True,
        )
    ),
    errors.NotFound: Explanation(
        Outcome(
            KEY_READY,
            False,
            reasons.ORGANIZATION_NOT_FOUND,
            "Coder has no organization {organization}, or {user} cannot see it; correct organizationName, or add the "
            "user to the organization",
            stalled=True,
        )
    ),
    errors.Invalid: Explanation(
        Outcome(
            KEY_READY,
            False,
            reasons.KEY_REJECTED,
            "Coder rejects provisioner key {key} of organization {organization}; correct key.name or tags: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.CoderdError: Explanation(
        Outcome(KEY_READY, None, reasons.FAILED, "Request to CoderControlPlane {plane} failed: {error}")
    ),
}
DAEMON_ERRORS: Explanations = {
    **COMMON_ERRORS,
    errors.CoderdError: Explanation(
        Outcome(
            DAEMONS_CONNECTED,
            None,
            reasons.DAEMONS_QUERY_FAILED,
            "Cannot list the daemons of organization {organization} at CoderControlPlane {plane}: {error}",
        )
    ),
}
BOOTSTRAP_ERRORS: Explanations = {
    errors.Unauthorized: Explanation(
        Outcome(
            BOOTSTRAP_SECRET_READY,
            False,
            reasons.TOKEN_REJECTED,
            "CoderControlPlane {plane} rejects the token in Secret {secret}; put a valid token under key {field}: "
            "{error}",
            stalled=True,
        )
    )
}
"""With a token that a user provides, which the operator cannot renew."""
UNREADABLE = Explanation(Outcome(ENTITLED, False, reasons.FORBIDDEN, "{user} cannot read entitlements: {error}"))
ENTITLEMENT_ERRORS: Explanations = {
    errors.NotSupported: COMMON_ERRORS[errors.NotSupported],
    errors.Unauthorized: UNREADABLE,
    errors.Forbidden: UNREADABLE,
    errors.CoderdError: Explanation(
        Outcome(
            ENTITLED,
            False,
            reasons.ENTITLEMENTS_QUERY_FAILED,
            "Cannot read the entitlements of CoderControlPlane {plane}: {error}",
        )
    ),
}


def explain_error(provisioner: CoderProvisioner, error: errors.CoderdError, explanations: Explanations) -> Explanation:
    """Explain an error for a provisioner, whose token a user may provide."""
    spec, plane = provisioner.spec, provisioner.spec.control_plane_ref.name
    names = {
        "plane": plane,
        "organization": records.organization_name(provisioner),
        "key": spec.key.name or provisioner.metadata.name,
    }
    if spec.bootstrap is None:
        return explain(error, explanations, user=f"the operator's user of CoderControlPlane {plane}", **names)
    where = spec.bootstrap.credentials_secret_ref
    user = f"the user of the token in Secret {where.name}"
    return explain(error, {**explanations, **BOOTSTRAP_ERRORS}, user=user, secret=where.name, field=where.key, **names)


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
                f"Waiting to create a key ({records.in_words(why)}): {len(provisioner.status.retiring_keys)} replaced "
                f"keys are not deleted yet; check what changes the spec or Secret {secret_name(provisioner)}"
            )
            report.add(KEY_READY, False, reasons.ROTATING, message)
            backoff_until = records.backoff_until(provisioner)
            report.requeue_after((backoff_until - now).total_seconds() if backoff_until is not None else 0.0)
        case keys.Wait(why):
            waiting = f"waiting until one of {len(provisioner.status.retiring_keys)} replaced keys is deleted"
            message = f"Rotation is due ({records.in_words(why)}); {waiting}"
            report.add(KEY_READY, True, reasons.ROTATING, message, satisfied=False)
