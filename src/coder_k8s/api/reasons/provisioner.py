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
    """The daemons are connected to Coder."""


CONTROL_PLANE_AVAILABLE = Reason("ControlPlaneAvailable", "The control plane exists and has a URL.")
CONTROL_PLANE_NOT_READY = Reason(
    "ControlPlaneNotReady",
    "The control plane has no URL yet.",
    "If it persists: check the conditions of the control plane.",
)
OPERATOR_ACCESS_READY = Reason("OperatorAccessReady", "The operator has a token of the control plane.")
ENTITLED = Reason(
    "Entitled",
    "The license covers external provisioners, or is in its grace period.",
    example="The license covers external provisioners",
)
ENTITLEMENTS_QUERY_FAILED = Reason(
    "EntitlementsQueryFailed",
    "The request to Coder failed; the operator retries.",
    "If it persists: check the logs of Coder's pods.",
)
KEY_READY = Reason("KeyReady", "Coder has the key.")
ROTATING = Reason(
    "Rotating",
    "A rotation is due. With the status True it waits until one of three earlier keys is retired; with False it "
    "starts soon.",
)
KEY_REJECTED = Reason(
    "KeyRejected",
    "Coder rejects the key because of its name or tags.",
    "Correct `key.name` or `tags`; the message has the error of Coder.",
)
DAEMONS_QUERY_FAILED = Reason(
    "DaemonsQueryFailed",
    "The operator cannot list the daemons in Coder; it retries.",
    "If it persists: check the logs of Coder's pods.",
)
ORGANIZATION_NOT_FOUND = Reason(
    "OrganizationNotFound",
    "Coder has no such organization, or hides it from the user of the token.",
    "Correct `organizationName`, or add this user to the organization.",
)
DAEMONS_CONNECTED = Reason("DaemonsConnected", "As many daemons as `replicas` are connected to Coder.")
DAEMONS_CONNECTING = Reason("DaemonsConnecting", "Some of the daemons are connected to Coder; the status is True.")
DAEMONS_NOT_CONNECTED = Reason(
    "DaemonsNotConnected",
    "None of the daemons is connected to Coder.",
    "If it persists: the logs of the pods show why they do not reach Coder.",
)

PROVISIONER_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    ProvisionerCondition.CONTROL_PLANE_READY: (CONTROL_PLANE_AVAILABLE, CONTROL_PLANE_MISSING, CONTROL_PLANE_NOT_READY),
    ProvisionerCondition.BOOTSTRAP_SECRET_READY: (
        SECRET_READY,
        SECRET_MISSING.means(
            "The Secret of `bootstrap.credentialsSecretRef` or its key does not exist.",
            "Create the Secret with a token of Coder under that key.",
        ),
        TOKEN_REJECTED.means(
            "Coder does not accept the token of the Secret.",
            "Create a new token in Coder, as a user who can manage provisioner keys, and put it into the Secret.",
        ),
    ),
    ProvisionerCondition.OPERATOR_ACCESS_READY: (
        OPERATOR_ACCESS_READY,
        OPERATOR_ACCESS_NOT_READY,
        TOKEN_REJECTED.means(
            "Coder does not accept the operator's token; the operator creates a new one.",
            "If it persists: see the condition `OperatorAccessReady` of the control plane.",
        ),
    ),
    ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED: (
        ENTITLED,
        NOT_ENTITLED.means(
            "The license does not cover external provisioners; running daemons are left alone.",
            "Set a license that covers them with `licenseSecretRef` of the control plane.",
        ),
        FORBIDDEN.means(
            "Coder does not let the operator read entitlements.",
            "Check that the user of the token can read entitlements and is not suspended.",
        ),
        NOT_SUPPORTED.means(
            "This build of Coder does not support external provisioners.",
            "Use an image of the control plane with the enterprise features.",
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
        ),
        KEY_REJECTED,
        RATE_LIMITED,
        FAILED.means(
            "The request to Coder failed; the operator retries.",
            "If it persists: check the logs of Coder's pods.",
        ),
    ),
    ProvisionerCondition.PROVISIONER_KEY_SECRET_READY: (
        SECRET_READY.means("The Secret holds the key."),
        NAME_TAKEN.means(
            "A Secret of that name belongs to another owner.",
            "Remove it, or set another `key.secretName`.",
        ),
        SPEC_INVALID.means(
            "The API server or a webhook rejects the Secret.",
            "Correct what the message names: `key.secretName`, `key.secretKey` or the webhook.",
        ),
        FIELD_NOT_SUPPORTED,
        FORBIDDEN.means(
            "The API server does not let the operator write the Secret: a role, a quota or a webhook forbids it.",
            "Install the operator's roles of this version, or change the quota or webhook that the message names.",
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
}
