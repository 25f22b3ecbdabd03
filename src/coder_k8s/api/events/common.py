"""The events of every kind."""

from .event import Event

READY = Event("Ready", "Normal", "The object became ready.")
STATUS_REJECTED = Event(
    "StatusRejected",
    "Warning",
    "A schema rule or a webhook of the API server rejects the status of the object, so its conditions are out of date.",
    "Correct the field that the message names, or the webhook.",
)
DELETION_PAUSED = Event(
    "DeletionPaused",
    "Warning",
    "The object is being deleted, but the annotation `coder.com/paused` blocks its cleanup.",
    "Remove the annotation: `kubectl coder resume <kind>/<name>`.",
)
PAUSED = Event("Paused", "Normal", "The annotation `coder.com/paused` was set; the operator makes no changes.")
RESUMED = Event("Resumed", "Normal", "The annotation `coder.com/paused` was removed; the operator reconciles again.")
CHILD_RESTORED = Event(
    "ChildRestored",
    "Normal",
    "Another client changed or deleted a child of the object, and the operator restored it; the message names the "
    "fields.",
)
CLEANUP_GIVEN_UP = Event(
    "CleanupGivenUp",
    "Warning",
    "A control plane or provisioner is deleted, and something outside of its namespace remains: Roles in other "
    "namespaces; of a control plane also keys or registrations of objects that still exist, or a token in Coder.",
    "Remove what the message names.",
)
"""Of the kinds that list it."""

COMMON_EVENTS = (READY, PAUSED, RESUMED, CHILD_RESTORED, STATUS_REJECTED, DELETION_PAUSED)
