"""The events of a CoderProvisioner with `autoscaling`."""

from .event import Event

SCALED_UP = Event("ScaledUp", "Normal", "The operator added pods; the message has the numbers and the cause.")
SCALED_DOWN = Event(
    "ScaledDown", "Normal", "The operator removed idle pods; the message has the numbers and the cause."
)
REPLICAS_IGNORED = Event(
    "ReplicasIgnored",
    "Warning",
    "A user, or an autoscaler, changed `spec.replicas`, but `autoscaling` sets the number of pods.",
    "Change `autoscaling` instead, or remove it. Remove a HorizontalPodAutoscaler or ScaledObject of this object.",
)
GRACE_PERIOD_TOO_SHORT = Event(
    "GracePeriodTooShort",
    "Warning",
    "Builds began to take longer than `terminationGracePeriodSeconds`.",
    "See the condition `AbleToScale`.",
)

AUTOSCALING_EVENTS = (SCALED_UP, SCALED_DOWN, REPLICAS_IGNORED, GRACE_PERIOD_TOO_SHORT)
