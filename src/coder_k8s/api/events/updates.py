"""The events of updates of a CoderControlPlane."""

from .event import Event

UPDATE_STARTED = Event("UpdateStarted", "Normal", "`image` has changed, and the operator checks the new image.")
UPDATE_STEP = Event("UpdateStep", "Normal", "The update has reached its next step, which the message names.")
UPDATE_COMPLETED = Event("UpdateCompleted", "Normal", "The update is complete.")
UPDATE_CANCELLED = Event(
    "UpdateCancelled", "Normal", "The spec has changed before pods stopped, and nothing is to be updated any more."
)
DRAIN_INCOMPLETE = Event(
    "DrainIncomplete",
    "Warning",
    "The update stops the pods although builds run, or although the operator cannot read which builds run.",
    "Builds that fail can be started again in Coder.",
)
VERSION_NOT_VERIFIED = Event(
    "VersionNotVerified",
    "Warning",
    "The new pod is ready, but did not report its version to the operator within two minutes. The update continues.",
    "Permit traffic from the operator to the pods of Coder.",
)

UPDATE_EVENTS = (
    UPDATE_STARTED,
    UPDATE_STEP,
    UPDATE_COMPLETED,
    UPDATE_CANCELLED,
    DRAIN_INCOMPLETE,
    VERSION_NOT_VERIFIED,
)
