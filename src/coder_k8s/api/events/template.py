"""The events of a CoderTemplate."""

from .event import Event

VERSION_CREATED = Event("VersionCreated", "Normal", "The operator created a version, which a provisioner imports.")
VERSION_IMPORT_FAILED = Event(
    "VersionImportFailed",
    "Warning",
    "The import of a version failed; the message has the end of its log. The active version is not changed.",
    "Correct the template.",
)
VERSION_PROMOTED = Event("VersionPromoted", "Normal", "The operator made a version the active version.")
TEMPLATE_CREATED = Event("TemplateCreated", "Normal", "The operator created the template in Coder.")
TEMPLATE_ADOPTED = Event(
    "TemplateAdopted",
    "Normal",
    "The object took over a template of its name because of the annotation `coder.com/adopt`.",
)
TEMPLATE_UPDATED = Event("TemplateUpdated", "Normal", "The operator changed settings or access of the template.")
DRIFT_REVERTED = Event(
    "DriftReverted",
    "Warning",
    "Someone changed the active version, the settings or the access in Coder, and the operator changed it back.",
    "Change the source or the spec instead, or set `drift: Report`.",
)
VERSIONS_ARCHIVED = Event("VersionsArchived", "Normal", "The operator archived old versions that no workspace uses.")
TEMPLATE_DELETED = Event("TemplateDeleted", "Normal", "The operator deleted the template in Coder.")
TEMPLATE_NOT_DELETED = Event(
    "TemplateNotDeleted",
    "Warning",
    "The operator cannot delete the template in Coder yet; it retries.",
    "Delete the workspaces, or fix what the message names.",
)
TEMPLATE_LEAKED = Event(
    "TemplateLeaked",
    "Warning",
    "The operator could not delete the template in Coder, which may stay there.",
    "Delete the template that the message names in Coder.",
)

TEMPLATE_EVENTS = (
    VERSION_CREATED,
    VERSION_IMPORT_FAILED,
    VERSION_PROMOTED,
    TEMPLATE_CREATED,
    TEMPLATE_ADOPTED,
    TEMPLATE_UPDATED,
    DRIFT_REVERTED,
    VERSIONS_ARCHIVED,
    TEMPLATE_DELETED,
    TEMPLATE_NOT_DELETED,
    TEMPLATE_LEAKED,
)
