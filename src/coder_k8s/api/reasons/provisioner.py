# ruff: noqa: S105 - the names of secrets are no secrets
"""The conditions of a CoderProvisioner, with their reasons."""

from enum import StrEnum

from .common import (
    CONTROL_PLANE_MISSING,
    FAILED,
    FIELD_NOT_SUPPORTED,
    FORBIDDEN,
    MINIMUM_REPLICAS_READY,
    NAME_TAKEN,
    NO_REPLICAS_READY,
    NOT_ENTITLED,
    NOT_SUPPORTED,
    OPERATOR_ACCESS_NOT_READY,
    RATE_LIMITED,
    SCALED_TO_ZERO,
    SECRET_MISSING,
    SECRET_READY,
    SPEC_INVALID,
    TOKEN_REJECTED,
)
from .reason import Reason
from .workspace_rbac import PROVISIONER_RBAC_REASONS


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
    """Coder has a key that matches the spec."""
    PROVISIONER_KEY_SECRET_READY = "ProvisionerKeySecretReady"
    """The Secret has the provisioner key."""
    DEPLOYMENT_READY = "DeploymentReady"
    """Pods of the daemons are ready."""
    DAEMONS_CONNECTED = "DaemonsConnected"
    """The daemons are connected to Coder."""
    WORKSPACE_RBAC_READY = "WorkspaceRBACReady"
    """The daemons can run workspaces in all the namespaces of the spec."""
    SCALING_ACTIVE = "ScalingActive"
    """The operator sets the number of pods by the jobs in Coder; only with `autoscaling`. Never decides `Ready`."""
    ABLE_TO_SCALE = "AbleToScale"
    """Nothing holds back a change of the number of pods; only with `autoscaling`. Never decides `Ready`."""
    SCALING_LIMITED = "ScalingLimited"
    """The number of pods is at a limit of the spec, and the jobs need another one; only with `autoscaling`. Never
    decides `Ready`."""


CONTROL_PLANE_AVAILABLE = Reason(
    "ControlPlaneAvailable",
    "The control plane exists, and its URL and image are known.",
    example="CoderControlPlane demo has a URL and an image",
)
CONTROL_PLANE_NOT_READY = Reason(
    "ControlPlaneNotReady",
    "The control plane has no URL yet, or its image is not known.",
    "If it persists: check the conditions of the control plane.",
    example="Waiting for CoderControlPlane demo to report status.url",
)
OPERATOR_ACCESS_READY = Reason(
    "OperatorAccessReady",
    "The operator has a token of the control plane.",
    example="The operator has a token for CoderControlPlane demo",
)
ENTITLED = Reason(
    "Entitled",
    "The license covers external provisioners, or is in its grace period.",
    example="The license covers external provisioners",
)
ENTITLEMENTS_QUERY_FAILED = Reason(
    "EntitlementsQueryFailed",
    "The request to Coder failed; the operator retries.",
    "If it persists: check the logs of Coder's pods.",
    example="Cannot read the entitlements of CoderControlPlane demo: HTTP 500: Internal error",
)
KEY_READY = Reason("KeyReady", "Coder has the key.", example="Key build of organization default has no tags")
ROTATING = Reason(
    "Rotating",
    "A rotation is due. With the status True it waits until one of three earlier keys is retired; with False it "
    "starts soon.",
    example="Rotation is due (tags changed); waiting until one of 3 replaced keys is deleted",
)
KEY_REJECTED = Reason(
    "KeyRejected",
    "Coder rejects the key because of its name or tags.",
    "Correct `key.name` or `tags`; the message has the error of Coder.",
    example="Coder rejects provisioner key build of organization default; correct key.name or tags: Name cannot be "
    "reserved name",
)
DAEMONS_QUERY_FAILED = Reason(
    "DaemonsQueryFailed",
    "The operator cannot list the daemons in Coder; it retries.",
    "If it persists: check the logs of Coder's pods.",
    example="Cannot list the daemons of organization default at CoderControlPlane demo: HTTP 502 that is "
    "not from coderd",
)
ORGANIZATION_NOT_FOUND = Reason(
    "OrganizationNotFound",
    "Coder has no such organization, or the user of the token cannot see it.",
    "Correct `organizationName`, or add this user to the organization.",
    example="Coder has no organization nowhere, or the operator's user of CoderControlPlane demo cannot see it; "
    "correct organizationName, or add the user to the organization",
)
DAEMONS_CONNECTED = Reason(
    "DaemonsConnected",
    "As many daemons as pods are desired are connected to Coder.",
    example="2 of 2 daemons are connected (v2.36.1)",
)
DAEMONS_CONNECTING = Reason(
    "DaemonsConnecting",
    "Some of the daemons are connected to Coder; the status is True.",
    example="1 of 2 daemons are connected (v2.36.1); if this persists, see the logs of Deployment provisioner-build",
)
DAEMONS_NOT_CONNECTED = Reason(
    "DaemonsNotConnected",
    "None of the daemons is connected to Coder.",
    "If it persists: the logs of the pods show why they do not reach Coder.",
    example="0 of 1 daemons are connected; if this persists, see the logs of Deployment provisioner-build",
)

PROVISIONER_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    ProvisionerCondition.CONTROL_PLANE_READY: (CONTROL_PLANE_AVAILABLE, CONTROL_PLANE_MISSING, CONTROL_PLANE_NOT_READY),
    ProvisionerCondition.BOOTSTRAP_SECRET_READY: (
        SECRET_READY.means("The Secret has a token.", example="Secret mine has a token under key token"),
        SECRET_MISSING.means(
            "The Secret of `bootstrap.credentialsSecretRef` or its key does not exist.",
            "Create the Secret with a token of Coder under that key.",
            example="Secret mine does not exist; create it with key token",
        ),
        TOKEN_REJECTED.means(
            "Coder does not accept the token of the Secret.",
            "Create a new token in Coder, as a user who can manage provisioner keys, and put it into the Secret.",
            example="CoderControlPlane demo rejects the token in Secret mine; put a valid token under key token: API "
            "key is invalid",
        ),
    ),
    ProvisionerCondition.OPERATOR_ACCESS_READY: (
        OPERATOR_ACCESS_READY,
        OPERATOR_ACCESS_NOT_READY,
        TOKEN_REJECTED.means(
            "Coder does not accept the operator's token; the operator creates a new one.",
            "If it persists: see the condition `OperatorAccessReady` of the control plane.",
            example="CoderControlPlane demo rejects the operator's token; see its condition OperatorAccessReady: API "
            "key is invalid",
        ),
    ),
    ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED: (
        ENTITLED,
        NOT_ENTITLED.means(
            "The license does not cover external provisioners; running daemons are not changed.",
            "Set a license that covers them with `licenseSecretRef` of the control plane.",
            example="The license of CoderControlPlane demo does not cover external provisioners; set one that does in "
            "its licenseSecretRef",
        ),
        FORBIDDEN.means(
            "Coder does not let the operator read entitlements.",
            "Check that the user of the token can read entitlements and is not suspended.",
            example="The operator's user of CoderControlPlane demo cannot read entitlements: Forbidden",
        ),
        NOT_SUPPORTED.means(
            "This build of Coder does not support external provisioners.",
            "Use an image of the control plane with the enterprise features.",
            example="CoderControlPlane demo runs a build of Coder without external provisioners; set an image that has "
            "them",
        ),
        ENTITLEMENTS_QUERY_FAILED,
    ),
    ProvisionerCondition.PROVISIONER_KEY_READY: (
        KEY_READY,
        ROTATING,
        ORGANIZATION_NOT_FOUND,
        FORBIDDEN.means(
            "The user of the token cannot manage provisioner keys of the organization, or the finalizer that a key "
            "needs cannot be added.",
            "Grant this user the role Organization Admin in the organization, or Owner; or change the policy or "
            "webhook that the message names.",
            example="The user of the token in Secret mine cannot manage provisioner keys of organization default; "
            "assign the role Organization Admin in this organization, or Owner: An internal server error occurred: "
            "unauthorized: rbac: forbidden",
        ),
        KEY_REJECTED,
        RATE_LIMITED.means(
            RATE_LIMITED.meaning,
            example="CoderControlPlane demo limits the request rate: You've been rate limited for sending more than "
            "512 requests in 1m0s",
        ),
        FAILED.means(
            "The request to Coder failed; the operator retries.",
            "If it persists: check the logs of Coder's pods.",
            example="Request to CoderControlPlane demo failed: HTTP 500: Internal error",
        ),
    ),
    ProvisionerCondition.PROVISIONER_KEY_SECRET_READY: (
        SECRET_READY.means(
            "The Secret has the key.",
            example="Secret build-provisioner-key has the provisioner key under key key",
        ),
        NAME_TAKEN.means(
            "A Secret of that name belongs to another owner.",
            "Remove it, or set another `key.secretName`.",
            example="Secret build-provisioner-key belongs to another owner; delete it or set another key.secretName",
        ),
        SPEC_INVALID.means(
            "The API server or a webhook rejects the Secret.",
            "Correct what the message names: `key.secretName`, `key.secretKey` or the webhook.",
        ),
        FIELD_NOT_SUPPORTED,
        FORBIDDEN.means(
            "The API server does not let the operator write the Secret: a role, a quota or a webhook forbids it.",
            "Install the operator's roles of this version, or change the quota or webhook that the message names.",
            example='Secrets "build-provisioner-key" is forbidden: exceeded quota: none, requested: count/secrets=1, '
            "used: count/secrets=0, limited: count/secrets=0",
        ),
    ),
    ProvisionerCondition.DEPLOYMENT_READY: (MINIMUM_REPLICAS_READY, NO_REPLICAS_READY),
    ProvisionerCondition.DAEMONS_CONNECTED: (
        DAEMONS_CONNECTED,
        DAEMONS_CONNECTING,
        DAEMONS_NOT_CONNECTED,
        DAEMONS_QUERY_FAILED,
        SCALED_TO_ZERO,
    ),
    ProvisionerCondition.WORKSPACE_RBAC_READY: PROVISIONER_RBAC_REASONS,
}
