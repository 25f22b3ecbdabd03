# ruff: noqa: S105 - the names of secrets are no secrets
"""What the operator says about each kind: the types of its conditions. Their reasons are in `reasons`."""

from enum import StrEnum


class CommonCondition(StrEnum):
    """The conditions of every kind."""

    READY = "Ready"
    """The summary: True only when every part that this object needs is True at this generation."""
    RECONCILING = "Reconciling"
    """True while work is under way."""
    STALLED = "Stalled"
    """True only when a human must act; its reason names the culprit."""


class ControlPlaneCondition(StrEnum):
    """The conditions of a CoderControlPlane."""

    AVAILABLE = "Available"
    """Pods serve requests."""
    OPERATOR_ACCESS_READY = "OperatorAccessReady"
    """The operator has a token for Coder's API."""
    LICENSE_APPLIED = "LicenseApplied"
    """Coder has the license of `licenseSecretRef`."""
    ENTITLEMENTS_KNOWN = "EntitlementsKnown"
    """The operator knows what this Coder is entitled to."""
    EXPOSED = "Exposed"
    """The Ingress or HTTPRoute is in place; only with `expose`."""
    WORKSPACE_RBAC_READY = "WorkspaceRBACReady"
    """Coder may run workspaces in all the namespaces of the spec."""


class ProvisionerCondition(StrEnum):
    """The conditions of a CoderProvisioner."""

    CONTROL_PLANE_READY = "ControlPlaneReady"
    """The control plane of `controlPlaneRef` exists and has a URL."""
    BOOTSTRAP_SECRET_READY = "BootstrapSecretReady"
    """The Secret of `bootstrap.credentialsSecretRef` has a token; only with `bootstrap`."""
    OPERATOR_ACCESS_READY = "OperatorAccessReady"
    """The operator has access to the control plane; only without `bootstrap`."""
    EXTERNAL_PROVISIONERS_ENTITLED = "ExternalProvisionersEntitled"
    """The license of the control plane covers external provisioners."""
    PROVISIONER_KEY_READY = "ProvisionerKeyReady"
    """Coder has the key that the spec asks for."""
    PROVISIONER_KEY_SECRET_READY = "ProvisionerKeySecretReady"
    """The Secret of the key holds it."""
    DEPLOYMENT_READY = "DeploymentReady"
    """Pods of the daemons are ready."""
    DAEMONS_CONNECTED = "DaemonsConnected"
    """Coder sees the daemons as connected."""


class WorkspaceProxyCondition(StrEnum):
    """The conditions of a CoderWorkspaceProxy."""

    REGISTERED = "Registered"
    """Coder knows the proxy by the name and icon of the spec."""
    TOKEN_SECRET_READY = "TokenSecretReady"
    """The Secret with the token of the proxy holds one."""
    DEPLOYMENT_READY = "DeploymentReady"
    """Pods of the proxy are ready."""
    PROXY_HEALTHY = "ProxyHealthy"
    """Coder sees the proxy as healthy; the message has its errors and warnings."""
