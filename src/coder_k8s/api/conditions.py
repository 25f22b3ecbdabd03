# ruff: noqa: S105 - the names of secrets are no secrets
"""What the operator says about each kind: the types of its conditions, with their reasons."""

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
    """
    Pods serve requests.

    - `MinimumReplicasReady`: at least one pod is ready.
    - `NoReplicasReady`: no pod is ready.
    - `RolloutInProgress`: the Deployment has not rolled out this generation yet.
    - `RolloutStuck`: the Deployment passed its progress deadline; the message has the first failing pod's reason.
    """
    OPERATOR_ACCESS_READY = "OperatorAccessReady"
    """
    The operator has a token for Coder's API.

    - `TokenReady`: it has one that works.
    - `Disabled`: `operatorAccess.disabled` is set.
    - `Pending`: Coder is not there yet, or has not set up its database.
    - `DatabaseURLMissing`: neither `extraEnv` nor `envFrom` has `CODER_PG_CONNECTION_URL`.
    - `DatabaseUnreachable`: the database does not answer or refuses the login.
    - `SchemaUnsupported`: the tables of this version of Coder are not what the operator knows.
    - `UsernameTaken`: a human has the user name `coder-k8s-operator`.
    - `SecretUnavailable`: the Secret of the token is missing, has no such key or belongs to someone else.
    - `TokenRejected`: Coder does not accept the token of `operatorAccess.tokenSecretRef`.
    """
    LICENSE_APPLIED = "LicenseApplied"
    """
    Coder has the license of `licenseSecretRef`.

    - `Applied`: it has.
    - `NotConfigured`: there is no `licenseSecretRef`; the status is Unknown.
    - `Pending`: Coder or the operator's access to it is not ready yet.
    - `SecretMissing`: the Secret or its key does not exist.
    - `Forbidden`: Coder does not let the operator upload licenses.
    - `NotSupported`: this build of Coder knows no licenses.
    - `Invalid`: Coder refused the license.
    - `Error`: the upload failed; it is tried again.
    """
    ENTITLEMENTS_KNOWN = "EntitlementsKnown"
    """
    The operator knows what this Coder is entitled to.

    - `Checked`: it asked within the last minutes.
    - `Pending`: Coder or the operator's access to it is not ready yet.
    - `Forbidden`: Coder does not tell.
    - `NotSupported`: this build of Coder knows no entitlements.
    - `Error`: the question failed; it is asked again.
    """
    EXPOSED = "Exposed"
    """
    The Ingress or HTTPRoute is in place; only with `expose`.

    - `Applied`: it is.
    - `GatewayAPIMissing`: the cluster has no Gateway API; the route follows when it appears.
    - `NotAccepted`: a Gateway does not accept the route.
    - `NameTaken`, `Invalid`, `Forbidden`: the API server or an object of somebody else refuses it.
    """
    WORKSPACE_RBAC_READY = "WorkspaceRBACReady"
    """
    Coder may run workspaces in all the namespaces of the spec.

    - `Applied`: it may.
    - `Disabled`: `rbac.workspacePerms` is off.
    - `NamespaceNotAllowed`: a namespace of `rbac.workspaceNamespaces` has not agreed.
    - `NamespaceMissing`: a namespace of `rbac.workspaceNamespaces` does not exist.
    - `Forbidden`: a rule of `rbac.extraRules` is more than the operator itself may do.
    - `NameTaken`, `Invalid`: the API server or a Role of somebody else refuses it.
    """


class ProvisionerCondition(StrEnum):
    """The conditions of a CoderProvisioner."""

    CONTROL_PLANE_READY = "ControlPlaneReady"
    """The control plane of `controlPlaneRef` exists and has a URL."""
    BOOTSTRAP_SECRET_READY = "BootstrapSecretReady"
    """The Secret of `bootstrap.credentialsSecretRef` has a token; only with `bootstrap`."""
    OPERATOR_ACCESS_READY = "OperatorAccessReady"
    """The operator has access to the control plane; only without `bootstrap`."""
    EXTERNAL_PROVISIONERS_ENTITLED = "ExternalProvisionersEntitled"
    """
    The license of the control plane covers external provisioners.

    - `Entitled`: it does, or did until recently and is in its grace period.
    - `NotEntitled`: it does not; daemons that already run are left alone.
    - `Forbidden`: Coder does not tell.
    - `NotSupported`: this build of Coder knows no external provisioners.
    - `EntitlementsQueryFailed`: the question failed; it is asked again.
    """
    PROVISIONER_KEY_READY = "ProvisionerKeyReady"
    """
    Coder has the key that the spec asks for.

    - `KeyReady`: it has.
    - `Rotating`: a new key takes the place of an old one.
    - `KeyMissing`: Coder does not have it; a new one is being made.
    - `RateLimited`: Coder asked to be called less often; it is tried again.
    - `Failed`: Coder refused; the message says why.
    """
    PROVISIONER_KEY_SECRET_READY = "ProvisionerKeySecretReady"
    """The Secret of the key holds it."""
    DEPLOYMENT_READY = "DeploymentReady"
    """
    Pods of the daemons are ready.

    - `MinimumReplicasReady`: at least one is.
    - `NoReplicasReady`: none is.
    """
    DAEMONS_CONNECTED = "DaemonsConnected"
    """Coder sees the daemons as connected."""


class WorkspaceProxyCondition(StrEnum):
    """The conditions of a CoderWorkspaceProxy."""

    REGISTERED = "Registered"
    """
    Coder knows the proxy by the name and icon of the spec.

    - `Registered`: it does.
    - `NotManaged`: the token is given by `proxySessionTokenSecretRef`; the status is Unknown.
    - `Pending`: the Secret for the token is not free.
    - `ControlPlaneMissing`: the control plane of `controlPlaneRef` does not exist.
    - `OperatorAccessNotReady`: the operator has no access to the control plane yet.
    - `CredentialsMissing`: the Secret of `bootstrap.credentialsSecretRef` has no token.
    - `CredentialsRejected`: Coder does not accept the token.
    - `Forbidden`: Coder does not let the owner of the token manage workspace proxies.
    - `NotEntitled`: the license does not cover workspace proxies; what already runs is left alone.
    - `NotSupported`: this build of Coder knows no workspace proxies.
    - `NameTaken`: Coder has a proxy of that name that the operator did not register.
    - `SecretRefused`: Kubernetes does not let the operator make the Secret for the token.
    - `Invalid`: Coder refused the request; the message says why.
    - `RateLimited`: Coder asked to be called less often; it is tried again.
    - `Unavailable`: Coder gave no usable answer; it is tried again.
    """
    TOKEN_SECRET_READY = "TokenSecretReady"
    """
    The Secret with the token of the proxy holds one.

    - `SecretReady`: it does.
    - `SecretMissing`: the Secret of `proxySessionTokenSecretRef` or its key does not exist.
    - `Pending`: the proxy is not registered yet.
    - `NameTaken`: a Secret of that name belongs to someone else.
    """
    DEPLOYMENT_READY = "DeploymentReady"
    """
    Pods of the proxy are ready.

    - `MinimumReplicasReady`: at least one is.
    - `NoReplicasReady`: none is.
    """
    PROXY_HEALTHY = "ProxyHealthy"
    """
    Coder sees the proxy as healthy; the message has its errors and warnings.

    - `Healthy`: it does.
    - `Unhealthy`: the proxy answers, but something is wrong.
    - `Unreachable`: the proxy does not answer.
    - `Unregistered`: the proxy has not been started yet.
    - `NoneWanted`: `replicas` is 0.
    - `NotManaged`: the token is given, so that the operator has no way to ask; the status is Unknown.
    - `Unknown`: Coder does not say.
    """
