"""The events of a CoderControlPlane."""

from .common import CLEANUP_GIVEN_UP
from .event import Event
from .health import HEALTH_EVENTS
from .jobs import JOB_EVENTS
from .updates import UPDATE_EVENTS

OPERATOR_TOKEN_ISSUED = Event("OperatorTokenIssued", "Normal", "The operator created a token for Coder's API.")
OPERATOR_TOKEN_REVOKED = Event(
    "OperatorTokenRevoked",
    "Normal",
    "The operator deleted its token in Coder: access is disabled, a given token replaces it, or the control plane is "
    "being deleted.",
)
OPERATOR_ACCESS_FAILED = Event(
    "OperatorAccessFailed",
    "Warning",
    "The operator cannot get a token and retries.",
    "See the condition `OperatorAccessReady`.",
)
OPERATOR_TOKEN_NOT_RENEWED = Event(
    "OperatorTokenNotRenewed",
    "Warning",
    "Coder accepts the operator's token, but the database cannot be checked, so the token is not renewed.",
    "Fix what the message names before the token expires, a year after its creation.",
)
LICENSE_APPLIED = Event("LicenseApplied", "Normal", "The operator uploaded the license to Coder.")
LICENSE_EXPIRING = Event(
    "LicenseExpiring",
    "Warning",
    "The last license expires within 30, 14 or 3 days; one event for each.",
    "Put a new license into the Secret of `licenseSecretRef`.",
)
ENTITLEMENT_LOST = Event(
    "EntitlementLost",
    "Warning",
    "The license no longer covers external provisioners.",
    "Renew the license. Running daemons are left alone.",
)
GATEWAY_API_MISSING = Event(
    "GatewayAPIMissing",
    "Warning",
    "The cluster has no Gateway API, so that the operator cannot create the HTTPRoute.",
    "Install the CRDs of the Gateway API, or use `expose.ingress`.",
)
NOT_ACCEPTED = Event(
    "NotAccepted",
    "Warning",
    "A Gateway does not accept the HTTPRoute, or has not processed it for a minute.",
    "See the condition `Exposed`.",
)
CLEANUP_WAITING = Event(
    "CleanupWaiting",
    "Normal",
    "The control plane is being deleted and waits until its provisioners and proxies have deleted their keys and "
    "registrations in Coder.",
)

CONTROL_PLANE_EVENTS = (
    OPERATOR_TOKEN_ISSUED,
    OPERATOR_TOKEN_REVOKED,
    OPERATOR_ACCESS_FAILED,
    OPERATOR_TOKEN_NOT_RENEWED,
    LICENSE_APPLIED,
    LICENSE_EXPIRING,
    ENTITLEMENT_LOST,
    GATEWAY_API_MISSING,
    NOT_ACCEPTED,
    CLEANUP_WAITING,
    CLEANUP_GIVEN_UP,
    *HEALTH_EVENTS,
    *JOB_EVENTS,
    *UPDATE_EVENTS,
)
