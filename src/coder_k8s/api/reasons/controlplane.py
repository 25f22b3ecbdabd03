"""The conditions of a CoderControlPlane, with their reasons."""

from enum import StrEnum

from .common import (
    APPLIED,
    DISABLED,
    ERROR,
    FORBIDDEN,
    MINIMUM_REPLICAS_READY,
    NO_REPLICAS_READY,
    NOT_SUPPORTED,
    PENDING,
    ROLLOUT_IN_PROGRESS,
    SCALED_TO_ZERO,
    SECRET_MISSING,
    TOKEN_REJECTED,
)
from .exposure import EXPOSURE_REASONS
from .health import HEALTH_REASONS, UPGRADING
from .jobs import JOBS_SERVED_REASONS, SCHEDULES_SERVED_REASONS
from .reason import Reason
from .updates import UPDATE_REASONS
from .workspace_rbac import CONTROL_PLANE_RBAC_REASONS


class ControlPlaneCondition(StrEnum):
    """The conditions of a CoderControlPlane."""

    AVAILABLE = "Available"
    """Pods serve requests."""
    OPERATOR_ACCESS_READY = "OperatorAccessReady"
    """The operator has a token for Coder's API."""
    LICENSE_APPLIED = "LicenseApplied"
    """Coder has the license of `licenseSecretRef`."""
    ENTITLEMENTS_KNOWN = "EntitlementsKnown"
    """The operator knows the entitlements of this Coder deployment."""
    EXPOSED = "Exposed"
    """The Ingress or HTTPRoute is in place; only with `expose`."""
    WORKSPACE_RBAC_READY = "WorkspaceRBACReady"
    """Coder can run workspaces in all the namespaces of the spec."""
    HEALTHY = "Healthy"
    """Coder's own health check finds no error; `Ready` does not depend on it."""
    JOBS_SERVED = "JobsServed"
    """A provisioner can run each job that waits; `Ready` does not depend on it."""
    SCHEDULES_SERVED = "SchedulesServed"
    """A provisioner can run the scheduled builds of each template; `Ready` does not depend on it."""
    UPGRADING = "Upgrading"
    """An update of Coder runs; absent before the first one."""


ROLLOUT_STUCK = Reason(
    "RolloutStuck",
    "The Deployment exceeded its progress deadline; the message has the reason of the first failing pod.",
    "Fix what the message names: the image, a Secret, node capacity, the database.",
    example='0 of 1 updated pods are ready; pod demo-1: ImagePullBackOff: Back-off pulling image "coder:typo"',
)
TOKEN_READY = Reason(
    "TokenReady",
    "The operator has a token that works. The message names its Secret, and why it is not renewed while the database "
    "cannot be checked.",
    example="The token in Secret demo-operator-token is valid until 2027-03-01",
)
DATABASE_URL_MISSING = Reason(
    "DatabaseURLMissing",
    "Neither `extraEnv` nor `envFrom` has `CODER_PG_CONNECTION_URL`.",
    "Set the database of Coder with this variable, or give the operator a token with `operatorAccess.tokenSecretRef`.",
    example="CODER_PG_CONNECTION_URL is defined neither in extraEnv nor in envFrom; set it to the URL of Coder's "
    "database",
)
DATABASE_UNREACHABLE = Reason(
    "DatabaseUnreachable",
    "The database does not respond to the operator, or rejects its login.",
    "Check that the operator's pod can reach the database (NetworkPolicy, firewall), and that user and password of the "
    "URL are correct.",
    example="PostgreSQL at 127.0.0.1 rejects the user or the password (SQLSTATE 28P01); check CODER_PG_CONNECTION_URL",
)
SCHEMA_UNSUPPORTED = Reason(
    "SchemaUnsupported",
    "The operator does not know the database schema of this version of Coder.",
    "Use a version of the operator that supports this version of Coder, or create a token in Coder and set it with "
    "`operatorAccess.tokenSecretRef`.",
    example="In Coder's database, table users requires a value for new; upgrade the operator, or set "
    "operatorAccess.tokenSecretRef",
)
USERNAME_TAKEN = Reason(
    "UsernameTaken",
    "A human user has the user name `coder-k8s-operator`.",
    "Rename that user in Coder.",
    example="User coder-k8s-operator in Coder does not belong to the operator; rename that user",
)
SECRET_UNAVAILABLE = Reason(
    "SecretUnavailable",
    "The Secret of the token is missing, has no such key, belongs to another owner or cannot be written.",
    "Create the Secret of `operatorAccess.tokenSecretRef` with its key. Without that field: remove the conflicting "
    "Secret, or set another `operatorAccess.generatedTokenSecretName`.",
    example="Secret given does not exist; create it with key token",
)
REDIRECTED_TO_ACCESS_URL = Reason(
    "RedirectedToAccessURL",
    "Coder redirects every request of the operator to its access URL.",
    "Set `CODER_REDIRECT_TO_ACCESS_URL` to `false`: the operator and the provisioners connect to Coder inside the "
    "cluster. Redirect browsers in the Ingress or Gateway instead.",
    example="Coder redirects the operator's requests to https://coder.example.com; set CODER_REDIRECT_TO_ACCESS_URL to "
    "false",
)
NOT_CONFIGURED = Reason(
    "NotConfigured",
    "`licenseSecretRef` is not set; the status is Unknown.",
    example="The spec has no licenseSecretRef",
)
LICENSE_INVALID = Reason(
    "LicenseInvalid",
    "Coder rejected the license; the message has its error. The operator uploads it again every hour, and when its "
    "Secret, the version or the deployment ID of Coder changes.",
    "Put a license for this deployment that has not expired into the Secret.",
    example="Coder v2.36.1 (deployment e8fc4100-7ff4-4c26-98aa-234ec8c19c38) rejects license 6e340b9cffb3 of Secret "
    "license: Invalid license: license has multiple issues; contact support. Store a valid license in the Secret",
)
CHECKED = Reason(
    "Checked",
    "The operator read the entitlements within the last minutes. The message has the license tier.",
    example="License tier premium; external provisioners are entitled",
)
OWNER_ROLE = (
    "Grant the role Owner in Coder to the user of the token of `operatorAccess.tokenSecretRef`, or see the condition "
    "`Stalled`."
)

CONTROL_PLANE_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    ControlPlaneCondition.AVAILABLE: (
        MINIMUM_REPLICAS_READY,
        NO_REPLICAS_READY.means(
            NO_REPLICAS_READY.meaning,
            f"{NO_REPLICAS_READY.remedy} If the message names a Secret or ConfigMap, pods wait for it: create it.",
            example="Pods cannot start: Secret it does not exist",
        ),
        ROLLOUT_IN_PROGRESS,
        ROLLOUT_STUCK,
        UPGRADING.means(
            "An update has stopped the pods, or one of them migrates the database.",
            example="Coder is not available during an update; see the condition Upgrading",
        ),
    ),
    ControlPlaneCondition.OPERATOR_ACCESS_READY: (
        TOKEN_READY,
        SCALED_TO_ZERO,
        UPGRADING,
        DISABLED.means("`operatorAccess.disabled` is set.", example="Disabled by operatorAccess.disabled"),
        PENDING.means(
            "Coder is not ready yet, or has not finished its database migrations.",
            example="Waiting for Coder to finish its database migrations",
        ),
        DATABASE_URL_MISSING,
        DATABASE_UNREACHABLE,
        SCHEMA_UNSUPPORTED,
        USERNAME_TAKEN,
        SECRET_UNAVAILABLE,
        TOKEN_REJECTED.means(
            "Coder does not accept the token of `operatorAccess.tokenSecretRef`, or the one that the operator created "
            "in the database of `CODER_PG_CONNECTION_URL`.",
            "Create a new token in Coder, as a user with the role Owner, and put it into the Secret. Without that "
            "field: set `CODER_PG_CONNECTION_URL` to the database that Coder uses.",
            example="Coder rejects the token in Secret given: API key is invalid; store a new token in key token",
        ),
        FORBIDDEN.means(
            "The finalizer that the token needs cannot be added. The status is the last known one.",
            "Change the policy or webhook that the condition `Stalled` names.",
            example="Finalizer coder.com/control-plane-cleanup cannot be added; the status is the last known one",
        ),
        REDIRECTED_TO_ACCESS_URL,
    ),
    ControlPlaneCondition.LICENSE_APPLIED: (
        APPLIED.means(
            "Coder has the license. The message has the day of its expiry.",
            example="The license of Secret license is in Coder and expires on 2027-03-01",
        ),
        SCALED_TO_ZERO,
        UPGRADING,
        NOT_CONFIGURED,
        PENDING,
        SECRET_MISSING.means(
            "The Secret of `licenseSecretRef` or its key does not exist.",
            "Create the Secret with the license under that key.",
            example="Secret license does not exist; create it with key license",
        ),
        FORBIDDEN.means(
            "Coder does not let the operator upload licenses, or a finalizer cannot be added.",
            OWNER_ROLE,
            example="Coder rejects the token in Secret given: API key is invalid",
        ),
        NOT_SUPPORTED.means(
            "This build of Coder does not support licenses.",
            "Use an image with the enterprise features, or remove `licenseSecretRef`.",
            example="Image ghcr.io/coder/coder:latest is a build of Coder without licenses; use another image, or "
            "remove licenseSecretRef",
        ),
        LICENSE_INVALID,
        ERROR.means(
            "The request to Coder or the upload failed; the operator retries.",
            ERROR.remedy,
            example="The license could not be checked in Coder: HTTP 500: Internal error",
        ),
    ),
    ControlPlaneCondition.ENTITLEMENTS_KNOWN: (
        CHECKED,
        SCALED_TO_ZERO,
        UPGRADING,
        PENDING,
        FORBIDDEN.means(
            "Coder does not let the operator read entitlements, or a finalizer cannot be added.",
            OWNER_ROLE,
            example="Coder rejects the token in Secret demo-operator-token: API key is invalid",
        ),
        NOT_SUPPORTED.means(
            "This build of Coder does not support entitlements.",
            example="Image ghcr.io/coder/coder:latest is a build of Coder without entitlements",
        ),
        ERROR,
    ),
    ControlPlaneCondition.EXPOSED: EXPOSURE_REASONS,
    ControlPlaneCondition.WORKSPACE_RBAC_READY: CONTROL_PLANE_RBAC_REASONS,
    ControlPlaneCondition.HEALTHY: HEALTH_REASONS,
    ControlPlaneCondition.JOBS_SERVED: JOBS_SERVED_REASONS,
    ControlPlaneCondition.SCHEDULES_SERVED: SCHEDULES_SERVED_REASONS,
    ControlPlaneCondition.UPGRADING: UPDATE_REASONS,
}
