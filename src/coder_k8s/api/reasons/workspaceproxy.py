"""The reasons of the conditions of a CoderWorkspaceProxy."""

from enum import StrEnum

from coder_k8s.api.conditions import Reason, WorkspaceProxyCondition

from .common import CONTROL_PLANE_MISSING, OPERATOR_ACCESS_NOT_READY, PODS, SCALED_TO_ZERO

NOT_MANAGED = Reason(
    "NotManaged",
    "The token is given by `proxySessionTokenSecretRef`, so that the operator has nothing to ask Coder; the status is "
    "Unknown.",
)

WORKSPACE_PROXY: dict[StrEnum, tuple[Reason, ...]] = {
    WorkspaceProxyCondition.REGISTERED: (
        Reason("Registered", "Coder knows the proxy."),
        NOT_MANAGED,
        Reason(
            "Pending",
            "The Secret for the token is not free.",
            "See the condition `TokenSecretReady`.",
        ),
        CONTROL_PLANE_MISSING,
        OPERATOR_ACCESS_NOT_READY,
        Reason(
            "CredentialsMissing",
            "The Secret of `bootstrap.credentialsSecretRef` or its key does not exist.",
            "Create the Secret with a token of Coder under that key.",
        ),
        Reason(
            "CredentialsRejected",
            "Coder does not accept the token.",
            "With `bootstrap`: make a new token in Coder and put it into the Secret. Else the control plane gets a "
            "new one by itself.",
        ),
        Reason(
            "Forbidden",
            "Coder does not let the user of the token manage workspace proxies, or the finalizer that a registration "
            "needs cannot be added.",
            "Give the user of the token the role Owner in Coder, or another role that may manage workspace proxies; or "
            "change the policy or webhook that the message names.",
        ),
        Reason(
            "NotEntitled",
            "The license does not cover workspace proxies; what already runs is left alone.",
            "Give that Coder a license that covers them.",
        ),
        Reason(
            "NotSupported",
            "This build of Coder knows no workspace proxies.",
            "Use an image of Coder with the enterprise features.",
        ),
        Reason(
            "NameTaken",
            "Coder has a proxy of that name that this object did not register.",
            "Delete it in Coder, rename this object, or stop the pods that use its token and take the proxy over with "
            'the annotation `coder.com/adopt: "true"`.',
        ),
        Reason(
            "SecretRefused",
            "Kubernetes does not let the operator make the Secret for the token.",
            "Change the role, quota or webhook that the message names.",
        ),
        Reason(
            "Invalid",
            "Coder refused the request; the message says why.",
            "Correct the field that the message names.",
        ),
        Reason("RateLimited", "Coder asked to be called less often; it is tried again."),
        Reason(
            "Unavailable",
            "Coder gave no usable answer; it is tried again.",
            "If it lasts: look whether the operator reaches Coder, and at the logs of Coder's pods.",
        ),
    ),
    WorkspaceProxyCondition.TOKEN_SECRET_READY: (
        Reason("SecretReady", "The Secret holds a token."),
        Reason(
            "SecretMissing",
            "The Secret of `proxySessionTokenSecretRef` or its key does not exist.",
            "Create the Secret with the token of the proxy under that key.",
        ),
        Reason("Pending", "The proxy is not registered yet.", "If it lasts: see the condition `Registered`."),
        Reason(
            "NameTaken",
            "A Secret of that name belongs to someone else.",
            "Remove it, or rename this object.",
        ),
    ),
    WorkspaceProxyCondition.DEPLOYMENT_READY: (
        *PODS,
        Reason(
            "ImagePending",
            "No image is set, and the control plane has not reported one in `status.image` yet.",
            "If it lasts: see the condition `Available` of the control plane, or set `image`.",
        ),
    ),
    WorkspaceProxyCondition.PROXY_HEALTHY: (
        Reason("Healthy", "Coder reaches the proxy and finds nothing wrong."),
        Reason(
            "Unhealthy",
            "The proxy answers, but something is wrong.",
            "The message has the errors that Coder found; often the access URL or the wildcard name is wrong.",
        ),
        Reason(
            "Unreachable",
            "The proxy does not answer Coder.",
            "Look whether Coder's pods reach the access URL of the proxy: DNS, certificate, NetworkPolicy.",
        ),
        Reason(
            "Unregistered",
            "Coder has not heard from the proxy yet.",
            "If it lasts: the logs of the proxy's pods say why they do not reach Coder.",
        ),
        SCALED_TO_ZERO,
        NOT_MANAGED,
        Reason(
            "Unknown",
            "Coder could not be asked, or does not say.",
            "If it lasts: see the condition `Registered`.",
        ),
    ),
}
