"""The conditions of every kind with their reasons, and the reasons that conditions of several kinds share."""

from enum import StrEnum

from .reason import Reason


class CommonCondition(StrEnum):
    """The conditions of every kind."""

    READY = "Ready"
    """Summary: True only when every component that this object needs is ready at this generation."""
    RECONCILING = "Reconciling"
    """True while the operator has work to do."""
    STALLED = "Stalled"
    """True only when user action is required; its reason names the cause."""


PAUSED = Reason(
    "Paused",
    "The annotation `coder.com/paused` is set; the operator makes no changes until it is removed. A deletion also "
    "waits.",
    "Remove the annotation to resume: `kubectl annotate <kind> <name> coder.com/paused-`.",
    example="Annotation coder.com/paused is set; no changes are made until it is removed (kubectl coder resume)",
)
PROGRESSING = Reason(
    "Progressing", "The operator is reconciling the object.", example="The first reconcile is in progress"
)
DELETING = Reason(
    "Deleting",
    "The object was paused while it is being deleted, and is resumed: the operator runs its cleanup.",
    example="The object is being deleted; its cleanup is in progress",
)
SCALED_TO_ZERO = Reason("ScaledToZero", "`replicas` is 0, so no pod is required.", example="Scaled to zero")
UP_TO_DATE = Reason("UpToDate", "The object is reconciled at this generation.", example="All changes are applied")
ALL_READY = Reason("AllReady", "Every component that this object needs is ready.", example="All components are ready")
RETRYING = Reason(
    "Retrying",
    "The API server failed during the reconcile. The operator retries with back-off.",
    "If it persists: the message has the error of the API server, and the operator's log has every attempt.",
    example='The API server failed: Internal error occurred: failed calling webhook "refuses.example.com": failed to '
    'call webhook: Post "https://127.0.0.1:1/?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused',
)
STALLED = Reason(
    "Stalled",
    "User action required.",
    "See the condition `Stalled`: its reason and message name the cause.",
    example="Blocked; see the Stalled condition",
)
CRD_OUTDATED = Reason(
    "CRDOutdated",
    "The CRDs in the cluster are older than the operator: the API server does not store fields of the status that the "
    "operator relies on.",
    "Install the CRDs of the operator's version. Until then the operator does not reconcile objects of this kind. "
    "Running pods keep running.",
    example="The CRDs in this cluster are older than the operator and do not store status.operatorTokenSecretRef. "
    "Install the CRDs of the operator's version",
)
FIELD_NOT_SUPPORTED = Reason(
    "FieldNotSupported",
    "The spec uses a field of pods, or of another object, that the API server of this cluster does not know.",
    "Remove the field that the message names from the spec, or upgrade the cluster. The operator does not create the "
    "object without the field.",
    example="The API server does not know spec.template.spec.securityContext.futurePolicy of Deployment; remove the "
    "field from the spec, or upgrade the cluster",
)
FORBIDDEN = Reason(
    "Forbidden",
    "The API server does not let the operator write an object, or a finalizer of this one: a role, a quota, a policy "
    "or a webhook forbids it.",
    "Install the operator's roles of this version, or change the quota, policy or webhook that the message names.",
    example="Finalizer coder.com/control-plane-cleanup cannot be added to this object: codercontrolplanes.coder.com "
    "\"demo\" is forbidden: ValidatingAdmissionPolicy 'test-1' with binding 'test-1' denied request: Finalizers are "
    "not allowed here. Nothing that needs a cleanup is created without it",
)
SPEC_INVALID = Reason(
    "SpecInvalid",
    "The API server or an admission webhook rejects an object because of the spec.",
    "Correct the spec. The message has the error of the API server, with the field that is wrong.",
    example='Deployment.apps "empty-image" is invalid: spec.template.spec.containers[0].image: Required value',
)
NAME_TAKEN = Reason(
    "NameTaken",
    "An object of the name that the operator needs exists and belongs to another owner.",
    "Rename this object, or delete the other one. The operator never takes over objects of other owners.",
    example="Service demo exists and has no owner; rename this object or delete the other one",
)

APPLIED = Reason("Applied", "The object or license is applied.")
DISABLED = Reason("Disabled", "The feature is disabled in the spec.")
PENDING = Reason(
    "Pending",
    "Coder, or the operator's access to it, is not ready yet.",
    example="Waiting for operator access and a ready pod",
)
ERROR = Reason(
    "Error",
    "The request to Coder failed; the operator retries.",
    "If it persists: check the logs of Coder's pods.",
    example="The entitlements could not be read from Coder: HTTP 500: Internal error",
)
FAILED = Reason(
    "Failed",
    "Coder rejected the request, or gave no usable response; the message has the cause.",
    "With the status False: correct what the message names. With Unknown: the operator retries.",
)
NOT_ENTITLED = Reason(
    "NotEntitled",
    "The license does not cover the feature; running pods are left alone.",
    "Use a license that covers it.",
)
NOT_SUPPORTED = Reason(
    "NotSupported",
    "This build of Coder does not have the feature.",
    "Use an image of Coder with the enterprise features.",
)
RATE_LIMITED = Reason("RateLimited", "Coder limits the rate of requests; the operator retries later.")
SECRET_MISSING = Reason(
    "SecretMissing",
    "The Secret or its key does not exist.",
    "Create the Secret with this key.",
)
SECRET_READY = Reason("SecretReady", "The Secret holds a token.")
TOKEN_REJECTED = Reason(
    "TokenRejected",
    "Coder does not accept the token.",
    "Create a new token in Coder and put it into the Secret.",
)
MINIMUM_REPLICAS_READY = Reason(
    "MinimumReplicasReady",
    "At least one pod is ready.",
    example="1 of 1 pods are ready with image ghcr.io/coder/coder:latest",
)
ROLLOUT_IN_PROGRESS = Reason(
    "RolloutInProgress",
    "Pods serve, but the rollout of this generation is not complete.",
    example="1 of 3 updated pods are ready",
)
NO_REPLICAS_READY = Reason(
    "NoReplicasReady",
    "No pod is ready, or `replicas` is 0.",
    "If it persists: check the pods with `kubectl describe pod`, and their logs.",
    example="0 of 1 updated pods are ready",
)
CONTROL_PLANE_MISSING = Reason(
    "ControlPlaneMissing",
    "The control plane of `controlPlaneRef` does not exist or is being deleted.",
    "Create the CoderControlPlane in the same namespace, or correct the name.",
    example="CoderControlPlane later does not exist; create it or correct controlPlaneRef.name",
)
OPERATOR_ACCESS_NOT_READY = Reason(
    "OperatorAccessNotReady",
    "The operator has no access to the control plane yet.",
    "If it persists: see the condition `OperatorAccessReady` of the control plane. Where operator access is disabled, "
    "set credentials in `bootstrap`.",
    example="Waiting for operator access of CoderControlPlane demo; see its condition OperatorAccessReady",
)

COMMON_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    CommonCondition.READY: (ALL_READY, SCALED_TO_ZERO, PROGRESSING, ROLLOUT_IN_PROGRESS, RETRYING, PAUSED, DELETING),
    CommonCondition.RECONCILING: (UP_TO_DATE, PROGRESSING, ROLLOUT_IN_PROGRESS, RETRYING, STALLED, PAUSED, DELETING),
    CommonCondition.STALLED: (
        UP_TO_DATE,
        PROGRESSING,
        NAME_TAKEN,
        SPEC_INVALID,
        FIELD_NOT_SUPPORTED,
        CRD_OUTDATED,
        FORBIDDEN,
        PAUSED,
        DELETING,
    ),
}
