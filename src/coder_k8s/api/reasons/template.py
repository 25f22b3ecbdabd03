"""The conditions of a CoderTemplate, with their reasons."""

from enum import StrEnum

from .common import (
    CONTROL_PLANE_MISSING,
    FORBIDDEN,
    NAME_TAKEN,
    NOT_ENTITLED,
    OPERATOR_ACCESS_NOT_READY,
    RATE_LIMITED,
    SCALED_TO_ZERO,
    SECRET_MISSING,
)
from .health import UPGRADING
from .jobs import NO_MATCHING_PROVISIONER
from .provisioner import ORGANIZATION_NOT_FOUND
from .reason import Reason
from .workspaceproxy import CODER_UNAVAILABLE, CREDENTIALS_REJECTED, NOT_MANAGED


class TemplateCondition(StrEnum):
    """The conditions of a CoderTemplate."""

    SOURCE_READY = "SourceReady"
    """The operator has the files and variables of the template."""
    IMPORTED = "Imported"
    """Coder has imported a version with these files, variables and tags."""
    PROMOTED = "Promoted"
    """This version is the active version of the template."""
    IN_SYNC = "InSync"
    """Active version, settings and access in Coder are those of this object."""
    SETTINGS_APPLIED = "SettingsApplied"
    """Coder has the settings and the access of the spec."""


SOURCE_READY = Reason(
    "SourceReady",
    "The operator has the files and variables of the template.",
    example="The source has revision generation 1",
)
SOURCE_MISSING = Reason(
    "SourceMissing",
    "The ConfigMap or Flux source does not exist, or Flux is not installed.",
    "Create what the message names, or correct `source`.",
    example="ConfigMap files does not exist; create it, or correct source.configMapRef.name",
)
SOURCE_NOT_READY = Reason(
    "SourceNotReady",
    "The Flux source has no artifact yet, or the operator cannot download it.",
    "If it persists: see the status of the Flux source, and check that the operator can reach the source controller.",
    example="GitRepository not-ready has no artifact yet; see its condition Ready",
)
SOURCE_INVALID = Reason(
    "SourceInvalid",
    "The files cannot be imported: there are none, a path is not allowed, or they are too large; or the artifact does "
    "not have the digest that Flux reports.",
    "Correct what the message names.",
    example="Inline files: There is no .tf file at the top of the source; add one, or correct the path of the source",
)
IMPORTED = Reason(
    "Imported", "Coder has imported the current source.", example="Version 0123456789ab-1 has the current source"
)
IMPORTING = Reason(
    "Importing",
    "A provisioner imports the current source, or is about to.",
    example="Version 0123456789ab-1 waits for a provisioner",
)
IMPORT_FAILED = Reason(
    "ImportFailed",
    "The import of the current source failed. The active version is not changed. The import is not repeated until the "
    "source, the variables or the tags change.",
    "Correct the template. The event `VersionImportFailed` has the end of the log.",
    example="The import of version 0123456789ab-1 failed; correct the template: template import init error: initialize "
    "terraform: exit status 1",
)
VARIABLES_MISSING = Reason(
    "VariablesMissing",
    "The template needs variables that have no value. The active version is not changed.",
    "Set the variables that the message names in `variables`.",
    example="The import of version 0123456789ab-1 failed; set the missing variables in variables: required template "
    "variables need values",
)
VERSION_REJECTED = Reason(
    "VersionRejected",
    "Coder rejects the files, the version or the template.",
    "Correct what the message of Coder names.",
)
PROMOTED = Reason(
    "Promoted",
    "The version of the current source is the active version.",
    example="Version 0123456789ab-1 is the active version",
)
PROMOTION_PENDING = Reason(
    "PromotionPending",
    "The version of the current source is not the active version yet: its import is not complete, or, with the policy "
    "`Manual`, the annotation `coder.com/promote` does not have its name.",
    "With the policy `Manual`: set the annotation that the message names.",
    example="Waiting for the import of version 0123456789ab-1",
)
IN_SYNC = Reason(
    "InSync", "Coder has what this object describes.", example="Template go in Coder is as this object describes"
)
DRIFTED = Reason(
    "Drifted",
    "Someone changed the template in Coder. With `drift: Revert`, the operator changes it back.",
    "With `drift: Report` or `managementPolicy: Observe`: change the template in Coder, or this object.",
    example="Template go in Coder is not as this object describes: version by-hand is active",
)
SYNC_PENDING = Reason(
    "SyncPending",
    "Coder does not have the template or its version yet.",
    example="Template go is not in Coder yet",
)
SETTINGS_APPLIED = Reason(
    "SettingsApplied",
    "Coder has the settings and the access of the spec, as far as it has any.",
    example="Template go has the settings of the spec",
)
SETTINGS_REJECTED = Reason(
    "SettingsRejected",
    "Coder rejects the settings or the access.",
    "Correct the fields that the message of Coder names.",
    example="Coder does not have group nobody; create it in Coder, or remove it from access",
)

_UNMANAGED = NOT_MANAGED.means(
    "With `managementPolicy: Observe`, or with `drift: Report` and a template that was deleted in Coder, the operator "
    "imports nothing."
)

TEMPLATE_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    TemplateCondition.SOURCE_READY: (
        SOURCE_READY,
        SOURCE_MISSING,
        SOURCE_NOT_READY,
        SOURCE_INVALID,
        SECRET_MISSING.means("The Secret of a variable, or its key, does not exist.", SECRET_MISSING.remedy),
    ),
    TemplateCondition.IMPORTED: (
        IMPORTED,
        _UNMANAGED,
        IMPORTING,
        IMPORT_FAILED,
        NO_MATCHING_PROVISIONER.means(
            "No connected provisioner has the tags of the template, so that nobody imports it. The operator tries "
            "again when one connects.",
            "Provide a provisioner with the tags that the message names, or correct `provisionerTags`.",
        ),
        VARIABLES_MISSING,
        VERSION_REJECTED,
        NAME_TAKEN.means(
            "Coder has a template of that name that this object did not create.",
            "Rename this object, delete the template in Coder, or take it over with the annotation "
            '`coder.com/adopt: "true"`.',
        ),
        CONTROL_PLANE_MISSING,
        OPERATOR_ACCESS_NOT_READY,
        ORGANIZATION_NOT_FOUND,
        CREDENTIALS_REJECTED,
        FORBIDDEN.means(
            "The user of the operator's token cannot manage templates, or a finalizer cannot be added.",
            "Give the user of the token the role Owner or Template Admin, or change the policy or webhook that the "
            "message names.",
        ),
        RATE_LIMITED.means("Coder or the operator itself limits the rate of requests; the operator retries later."),
        SCALED_TO_ZERO.means("The control plane has no pods. The status is the last known one."),
        UPGRADING.means("The control plane is being updated. The status is the last known one."),
        CODER_UNAVAILABLE,
    ),
    TemplateCondition.PROMOTED: (PROMOTED, PROMOTION_PENDING, _UNMANAGED),
    TemplateCondition.IN_SYNC: (IN_SYNC, DRIFTED, SYNC_PENDING),
    TemplateCondition.SETTINGS_APPLIED: (
        SETTINGS_APPLIED,
        NOT_ENTITLED.means(
            "The license does not cover settings or access of the spec. Coder ignores them; the others are applied.",
            "Use a license that covers what the message names, or remove it from the spec.",
        ),
        SETTINGS_REJECTED,
        RATE_LIMITED.means("The operator limits the rate of its requests, and has not read the access yet."),
        SYNC_PENDING.means("Coder does not have the template yet."),
    ),
}
