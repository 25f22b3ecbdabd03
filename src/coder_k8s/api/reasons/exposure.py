"""The reasons of the condition `Exposed`."""

from .common import (
    APPLIED,
    FIELD_NOT_SUPPORTED,
    FORBIDDEN,
    NAME_TAKEN,
    PENDING,
    SPEC_INVALID,
)
from .reason import Reason

WAITING_FOR_GATEWAY = Reason(
    "WaitingForGateway",
    "A Gateway has not accepted the route yet; the operator waits one minute.",
    example="Waiting for Gateway public to accept HTTPRoute demo",
)
GATEWAY_API_MISSING = Reason(
    "GatewayAPIMissing",
    "The cluster has no Gateway API; the operator creates the route when it is installed. An earlier Ingress stays.",
    "Install the CRDs of the Gateway API, or use `expose.ingress`.",
    example="The cluster has no Gateway API; install its CRDs, or use expose.ingress",
)
NOT_ACCEPTED = Reason(
    "NotAccepted",
    "A Gateway does not accept the route, or has not responded for a minute.",
    "Check the Gateway that the message names: whether it exists and has a controller, its listeners, host names and "
    "`allowedRoutes`.",
    example="Gateway public does not accept HTTPRoute demo: no listener takes this host",
)

EXPOSURE_REASONS = (
    APPLIED.means(
        "The Ingress is in place, or every Gateway accepts the HTTPRoute.",
        example="Ingress demo serves coder.example.com",
    ),
    PENDING.means(
        "The Service does not exist yet.",
        "If it persists: see the condition `Stalled`.",
        example="Waiting for Service bad-annotation",
    ),
    WAITING_FOR_GATEWAY,
    GATEWAY_API_MISSING,
    NOT_ACCEPTED,
    NAME_TAKEN.means(
        "A Service, Ingress or HTTPRoute of that name belongs to another owner. What was exposed before stays.",
        "Remove it, or rename this object.",
        example="HTTPRoute demo exists and has no owner; rename this object or delete the other one",
    ),
    SPEC_INVALID.means(
        "The API server or a webhook rejects the Ingress or HTTPRoute.",
        "Correct `expose`; the message has the error.",
    ),
    FIELD_NOT_SUPPORTED,
    FORBIDDEN.means(
        "The API server does not let the operator write the Ingress or HTTPRoute.",
        "Install the operator's roles of this version, or change the quota or webhook that the message names.",
    ),
)
