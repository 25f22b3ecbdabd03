"""The events of a CoderProvisioner."""

from .common import CLEANUP_GIVEN_UP
from .event import Event

PROVISIONER_KEY_CREATED = Event("ProvisionerKeyCreated", "Normal", "The operator created the first key in Coder.")
PROVISIONER_KEY_ROTATED = Event(
    "ProvisionerKeyRotated",
    "Normal",
    "The operator created a key that replaces the last one; the message has the cause.",
)
PROVISIONER_KEY_RETIRED = Event(
    "ProvisionerKeyRetired", "Normal", "The operator deleted a key that no daemon uses any more."
)
PROVISIONER_KEY_NAME_TAKEN = Event(
    "ProvisionerKeyNameTaken",
    "Warning",
    "Coder has a key of that name that this object did not create. It stays, and the new key gets another name.",
    "Delete the other key in Coder if it is not needed.",
)
PROVISIONER_KEY_NOT_DELETED = Event(
    "ProvisionerKeyNotDeleted",
    "Warning",
    "The operator cannot delete a key that no daemon uses any more, or cannot see its organization; it retries.",
    "Grant the user of the token the role Organization Admin in the organization, or delete the key in Coder.",
)
PROVISIONER_KEY_LEAKED = Event(
    "ProvisionerKeyLeaked",
    "Warning",
    "The operator could not delete a key in Coder that is no longer needed.",
    "Delete the key that the message names in Coder.",
)
DAEMON_RESTARTED = Event(
    "DaemonRestarted",
    "Warning",
    "The operator deleted a pod that is ready while Coder has not seen its daemon for minutes.",
    "If it happens often: check the network between the pods and Coder.",
)

PROVISIONER_EVENTS = (
    PROVISIONER_KEY_CREATED,
    PROVISIONER_KEY_ROTATED,
    PROVISIONER_KEY_RETIRED,
    PROVISIONER_KEY_NAME_TAKEN,
    PROVISIONER_KEY_NOT_DELETED,
    PROVISIONER_KEY_LEAKED,
    DAEMON_RESTARTED,
    CLEANUP_GIVEN_UP,
)
