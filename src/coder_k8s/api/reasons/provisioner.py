"""The reasons of the conditions of a CoderProvisioner."""

from enum import StrEnum

from coder_k8s.api.conditions import ProvisionerCondition, Reason

from .common import CONTROL_PLANE_MISSING, FIELD_NOT_SUPPORTED, OPERATOR_ACCESS_NOT_READY, PODS, SCALED_TO_ZERO

PROVISIONER: dict[StrEnum, tuple[Reason, ...]] = {
    ProvisionerCondition.CONTROL_PLANE_READY: (
        Reason("ControlPlaneAvailable", "The control plane exists and has a URL."),
        CONTROL_PLANE_MISSING,
        Reason(
            "ControlPlaneNotReady",
            "The control plane has no URL yet.",
            "If it lasts: look at the conditions of the control plane.",
        ),
    ),
    ProvisionerCondition.BOOTSTRAP_SECRET_READY: (
        Reason("SecretReady", "The Secret has a token."),
        Reason(
            "SecretMissing",
            "The Secret of `bootstrap.credentialsSecretRef` or its key does not exist.",
            "Create the Secret with a token of Coder under that key.",
        ),
        Reason(
            "TokenRejected",
            "Coder does not accept the token of the Secret.",
            "Make a new token in Coder, as a user who may manage provisioner keys, and put it into the Secret.",
        ),
    ),
    ProvisionerCondition.OPERATOR_ACCESS_READY: (
        Reason("OperatorAccessReady", "The operator has a token of the control plane."),
        OPERATOR_ACCESS_NOT_READY,
        Reason(
            "TokenRejected",
            "Coder does not accept the operator's token; the control plane gets a new one.",
            "If it lasts: see the condition `OperatorAccessReady` of the control plane.",
        ),
    ),
    ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED: (
        Reason("Entitled", "The license covers them, or did until recently and is in its grace period."),
        Reason(
            "NotEntitled",
            "The license does not cover external provisioners; daemons that already run are left alone.",
            "Give the control plane a license that covers them, by its `licenseSecretRef`.",
        ),
        Reason(
            "Forbidden",
            "Coder does not tell.",
            "Look whether the owner of the token may read entitlements and has not been suspended.",
        ),
        Reason(
            "NotSupported",
            "This build of Coder knows no external provisioners.",
            "Use an image of the control plane with the enterprise features.",
        ),
        Reason(
            "EntitlementsQueryFailed",
            "The question failed; it is asked again.",
            "If it lasts: look at the logs of Coder's pods.",
        ),
    ),
    ProvisionerCondition.PROVISIONER_KEY_READY: (
        Reason("KeyReady", "Coder has the key."),
        Reason(
            "Rotating",
            "Another key is due; it is made when one of three earlier keys is retired or, with the status False, soon.",
        ),
        Reason(
            "OrganizationNotFound",
            "Coder has no such organization, or hides it from the user of the token.",
            "Correct `organizationName`, or add this user to the organization.",
        ),
        Reason(
            "Forbidden",
            "The user of the token may not manage provisioner keys of the organization, or the finalizer that a key "
            "needs cannot be added.",
            "Give this user the role Organization Admin in the organization, or Owner; or change the policy or webhook "
            "that the message names.",
        ),
        Reason("RateLimited", "Coder asked to be called less often; it is tried again."),
        Reason(
            "Failed",
            "Coder refused, or gave no usable answer; the message says why.",
            "With the status False: correct what the message names. With Unknown: it is tried again.",
        ),
    ),
    ProvisionerCondition.PROVISIONER_KEY_SECRET_READY: (
        Reason("SecretReady", "The Secret holds the key."),
        Reason(
            "NameTaken",
            "A Secret of that name belongs to someone else.",
            "Remove it, or choose another `key.secretName`.",
        ),
        Reason(
            "Invalid",
            "The API server or a webhook refuses the Secret.",
            "Correct what the message names: `key.secretName`, `key.secretKey` or the webhook.",
        ),
        FIELD_NOT_SUPPORTED,
        Reason(
            "Forbidden",
            "The API server does not let the operator write the Secret: a role, a quota or a webhook forbids it.",
            "Install the operator's roles of this version, or change the quota or webhook that the message names.",
        ),
    ),
    ProvisionerCondition.DEPLOYMENT_READY: PODS,
    ProvisionerCondition.DAEMONS_CONNECTED: (
        Reason("Connected", "Coder sees as many daemons as `replicas` asks for."),
        Reason("Connecting", "Coder sees some of the daemons; the status is True."),
        Reason(
            "NotConnected",
            "Coder sees none of the daemons.",
            "If it lasts: the logs of the pods say why they do not reach Coder.",
        ),
        Reason(
            "Failed",
            "Coder gave no usable answer when it was asked for the daemons; it is asked again.",
            "If it lasts: look at the logs of Coder's pods.",
        ),
        SCALED_TO_ZERO,
    ),
}
