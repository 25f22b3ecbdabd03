"""The reasons of the conditions that every kind has, and reasons that several kinds share."""

from enum import StrEnum

from coder_k8s.api.conditions import CommonCondition, Reason

PAUSED = Reason(
    "Paused",
    "The annotation `coder.com/paused` is set, and nothing is written until it is removed.",
    "Remove the annotation when the operator shall go on: `kubectl annotate <kind> <name> coder.com/paused-`.",
)
SCALED_TO_ZERO = Reason("ScaledToZero", "`replicas` is 0, so that nothing is waited for.")
PROGRESSING = Reason("Progressing", "The operator is at work.")
FIELD_NOT_SUPPORTED = Reason(
    "FieldNotSupported",
    "The spec uses a field of pods, or of another object, that the API server of this cluster does not know.",
    "Remove the field that the message names from the spec, or update the cluster. "
    "The operator creates nothing without the field, for that would be another object than the spec asks for.",
)
SETTLED = Reason("Settled", "Everything is as it should be.")

COMMON: dict[StrEnum, tuple[Reason, ...]] = {
    CommonCondition.READY: (
        Reason("AllPartsReady", "Every part that this object needs is ready."),
        SCALED_TO_ZERO,
        PROGRESSING,
        Reason(
            "Retrying",
            "The API server failed in the middle of the work. It is tried again, with growing patience.",
            "If it lasts: the message has the API server's words, and the operator's log has every try.",
        ),
        PAUSED,
    ),
    CommonCondition.RECONCILING: (
        SETTLED,
        PROGRESSING,
        Reason(
            "Stalled",
            "The operator waits for somebody to act.",
            "See the condition `Stalled`: its reason and message name the culprit.",
        ),
        PAUSED,
    ),
    CommonCondition.STALLED: (
        SETTLED,
        PROGRESSING,
        Reason(
            "NameTaken",
            "An object of the name that the operator needs exists and belongs to someone else.",
            "Rename this object, or remove the other one. The operator never takes over what is not its own.",
        ),
        Reason(
            "Invalid",
            "The API server refuses an object because of what the spec says, or an admission webhook does.",
            "Correct the spec. The message has the words of the API server, with the field that is wrong.",
        ),
        FIELD_NOT_SUPPORTED,
        Reason(
            "CRDOutdated",
            "The CRDs in the cluster are older than the operator: the API server does not store fields of the status "
            "that the operator relies on.",
            "Install the CRDs of the operator's version. Until then the operator does nothing about objects of this "
            "kind. What runs keeps running.",
        ),
        Reason(
            "Forbidden",
            "The API server does not let the operator write an object, or a finalizer of this one: a role, a quota, a "
            "policy or a webhook forbids it.",
            "Install the operator's roles of this version, or change the quota, policy or webhook that the message "
            "names.",
        ),
        PAUSED,
    ),
}

PODS = (
    Reason("MinimumReplicasReady", "At least one pod is ready."),
    Reason(
        "NoReplicasReady",
        "No pod is ready, or `replicas` is 0.",
        "If it lasts: look at the pods with `kubectl describe pod` and at their logs.",
    ),
)
"""Those of a Deployment."""
CONTROL_PLANE_MISSING = Reason(
    "ControlPlaneMissing",
    "The control plane of `controlPlaneRef` does not exist or is being deleted.",
    "Create the CoderControlPlane in the same namespace, or correct the name.",
)
OPERATOR_ACCESS_NOT_READY = Reason(
    "OperatorAccessNotReady",
    "The operator has no access to the control plane yet.",
    "If it lasts: see the condition `OperatorAccessReady` of the control plane. Where operator access is disabled, "
    "give credentials by `bootstrap`.",
)
