# ruff: noqa: S105 - the names of secrets are no secrets
"""The conditions of a CoderWorkspaceProxy, with their reasons."""

from enum import StrEnum

from .common import (
    CONTROL_PLANE_MISSING,
    FORBIDDEN,
    MINIMUM_REPLICAS_READY,
    NAME_TAKEN,
    NO_REPLICAS_READY,
    NOT_ENTITLED,
    NOT_SUPPORTED,
    OPERATOR_ACCESS_NOT_READY,
    PENDING,
    RATE_LIMITED,
    SCALED_TO_ZERO,
    SECRET_MISSING,
    SECRET_READY,
)
from .reason import Reason


class WorkspaceProxyCondition(StrEnum):
    """The conditions of a CoderWorkspaceProxy."""

    REGISTERED = "Registered"
    """Coder has the proxy with the name and icon of the spec."""
    TOKEN_SECRET_READY = "TokenSecretReady"
    """The Secret has the token of the proxy."""
    DEPLOYMENT_READY = "DeploymentReady"
    """Pods of the proxy are ready."""
    PROXY_HEALTHY = "ProxyHealthy"
    """Coder reports the proxy as healthy; the message has its errors and warnings."""


NOT_MANAGED = Reason(
    "NotManaged",
    "The token comes from `proxySessionTokenSecretRef`, so the operator does not query Coder; the status is Unknown.",
    example="The token comes from proxySessionTokenSecretRef, so the operator does not query Coder",
)
REGISTERED = Reason(
    "Registered",
    "The proxy is registered in Coder.",
    example="Registered as sydney at CoderControlPlane demo",
)
CREDENTIALS_MISSING = Reason(
    "CredentialsMissing",
    "The Secret of `bootstrap.credentialsSecretRef` or its key does not exist.",
    "Create the Secret with a token of Coder under that key.",
    example="Secret coder-session does not exist; create it with key token",
)
CREDENTIALS_REJECTED = Reason(
    "CredentialsRejected",
    "Coder does not accept the token.",
    "With `bootstrap`: create a new token in Coder and put it into the Secret. Otherwise the operator creates a new "
    "one.",
    example="CoderControlPlane demo rejects the operator's token; see its condition OperatorAccessReady: API key is "
    "invalid",
)
REGISTRATION_INVALID = Reason(
    "RegistrationInvalid",
    "Coder rejects the proxy because of its name, display name or icon.",
    "Correct the field that the message names.",
)
SECRET_REFUSED = Reason(
    "SecretRefused",
    "Kubernetes does not let the operator create the Secret for the token.",
    "Change the role, quota or webhook that the message names.",
    example='Cannot create Secret sydney-proxy-token for the token: secrets "sydney-proxy-token" is forbidden: '
    "exceeded quota: secrets, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1",
)
CODER_UNAVAILABLE = Reason(
    "CoderUnavailable",
    "Coder gave no usable response; the operator retries.",
    "If it persists: check that the operator can reach Coder, and the logs of Coder's pods.",
    example="Request to Coder at http://coder.example.com failed; check bootstrap.coderURL: HTTP 500: Internal error",
)
IMAGE_PENDING = Reason(
    "ImagePending",
    "No image is set, and the control plane has not reported one in `status.image` yet.",
    "If it persists: see the condition `Available` of the control plane, or set `image`.",
    example="Waiting for CoderControlPlane demo to report status.image after its first rollout; or set image",
)
PROXY_HEALTHY = Reason(
    "ProxyHealthy",
    "Coder reaches the proxy and reports no errors.",
    example="Coder reaches the proxy, which runs v2.36.1",
)
PROXY_UNHEALTHY = Reason(
    "ProxyUnhealthy",
    "Coder reaches the proxy and reports errors.",
    "The message has the errors of Coder; often the access URL or the wildcard name is wrong.",
    example="Coder reaches the proxy and reports it as unhealthy: no DERP mesh; warning: slow",
)
PROXY_UNREACHABLE = Reason(
    "ProxyUnreachable",
    "Coder cannot reach the proxy.",
    "Check that Coder's pods can reach the access URL of the proxy: DNS, certificate, NetworkPolicy.",
    example="Coder cannot reach the proxy at its access URL: no DERP mesh; warning: slow",
)
PROXY_UNREGISTERED = Reason(
    "ProxyUnregistered",
    "The proxy has not connected to Coder yet.",
    "If it persists: the logs of the proxy's pods show why they do not reach Coder.",
    example="The proxy has not connected to Coder yet",
)
HEALTH_UNKNOWN = Reason(
    "HealthUnknown",
    "The operator cannot query Coder, or Coder does not report the health of the proxy.",
    "If it persists: see the condition `Registered`.",
    example="The health is not known; see the condition Registered",
)

WORKSPACE_PROXY_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    WorkspaceProxyCondition.REGISTERED: (
        REGISTERED,
        NOT_MANAGED,
        PENDING.means(
            "Another object has the name of the token Secret.",
            "See the condition `TokenSecretReady`.",
            example="Waiting for the name of Secret sydney-proxy-token to become free",
        ),
        CONTROL_PLANE_MISSING,
        OPERATOR_ACCESS_NOT_READY,
        CREDENTIALS_MISSING,
        CREDENTIALS_REJECTED,
        FORBIDDEN.means(
            "Coder does not let the user of the token manage workspace proxies, or the finalizer that a registration "
            "needs cannot be added.",
            "Grant the user of the token the role Owner in Coder, or another role that can manage workspace proxies; "
            "or change the policy or webhook that the message names.",
            example="The user of the token in Secret coder-session cannot manage workspace proxies; assign the role "
            "Owner: An internal server error occurred: unauthorized: rbac: forbidden",
        ),
        NOT_ENTITLED.means(
            "The license does not cover workspace proxies; running pods are not changed.",
            "Use a license that covers them in that Coder.",
            example="The license of CoderControlPlane demo does not cover workspace proxies; add one that does: "
            "Workspace Proxy is a Premium feature. Contact sales!",
        ),
        NOT_SUPPORTED.means(
            "This build of Coder does not support workspace proxies.",
            NOT_SUPPORTED.remedy,
            example="CoderControlPlane demo is a build of Coder without workspace proxies; use an image that has them",
        ),
        NAME_TAKEN.means(
            "Coder has a proxy of that name that this object did not register.",
            "Delete it in Coder, rename this object, or stop the pods that use its token and take the proxy over with "
            'the annotation `coder.com/adopt: "true"`.',
            example="Coder already has a proxy named sydney that this object did not register; delete it in Coder, "
            'rename this object, or take it over with the annotation coder.com/adopt: "true"',
        ),
        SECRET_REFUSED,
        REGISTRATION_INVALID,
        RATE_LIMITED.means(
            RATE_LIMITED.meaning,
            example="Coder at http://coder.example.com limits the request rate: You've been rate limited for sending "
            "more than 512 requests in 1m0s",
        ),
        CODER_UNAVAILABLE,
    ),
    WorkspaceProxyCondition.TOKEN_SECRET_READY: (
        SECRET_READY.means(
            "The Secret has the token of the proxy.",
            example="Secret sydney-proxy-token has the token of the proxy under key token",
        ),
        SECRET_MISSING.means(
            "The Secret of `proxySessionTokenSecretRef` or its key does not exist.",
            "Create the Secret with the token of the proxy under that key.",
            example="Secret proxy-token does not exist; create it with key token",
        ),
        PENDING.means(
            "The proxy is not registered yet.",
            "If it persists: see the condition `Registered`.",
            example="Waiting for the registration; see the condition Registered",
        ),
        NAME_TAKEN.means(
            "A Secret of that name belongs to another owner.",
            "Remove it, set `bootstrap.generatedTokenSecretName`, or rename this object.",
            example="Secret sydney-proxy-token belongs to another owner; delete it or set "
            "bootstrap.generatedTokenSecretName",
        ),
    ),
    WorkspaceProxyCondition.DEPLOYMENT_READY: (MINIMUM_REPLICAS_READY, NO_REPLICAS_READY, IMAGE_PENDING),
    WorkspaceProxyCondition.PROXY_HEALTHY: (
        PROXY_HEALTHY,
        PROXY_UNHEALTHY,
        PROXY_UNREACHABLE,
        PROXY_UNREGISTERED,
        SCALED_TO_ZERO,
        NOT_MANAGED,
        HEALTH_UNKNOWN,
    ),
}
