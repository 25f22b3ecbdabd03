# ruff: noqa: RUF012 - msgspec copies an empty default
"""CoderTemplate: a template of a Coder deployment, kept in sync with its source."""

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from coder_k8s.kube.objects import Kind

from .events.template import TEMPLATE_EVENTS
from .markers import Check, Column, Resource, Schema
from .reasons.template import TEMPLATE_REASONS, TemplateCondition
from .shared import GROUP, VERSION, CoderObject, ControlPlaneRef, Int32, NotEmpty, Part, SecretKey, Status, columns
from .template_settings import Access, Settings
from .template_source import Source

NAME_LIMIT = 32
VARIABLES_LIMIT = 100
TAGS_LIMIT = 50

TemplateName = Annotated[
    str,
    Schema(maxLength=NAME_LIMIT),
    Check(
        "self == '' || (self.matches('^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$') && !(self in ['new', 'create']))",
        "must be letters and digits joined by '-', and neither new nor create, such as go-workspace",
    ),
]
VersionName = Annotated[str, Schema(maxLength=64)]


class ValueSource(Part, kw_only=True, frozen=True):
    """Where the value of a variable comes from."""

    secret_key_ref: SecretKey
    """Secret with the value."""


class Variable(Part, kw_only=True, frozen=True):
    """The value of a Terraform variable."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check("!(has(self.value) && has(self.valueFrom))", "value and valueFrom are mutually exclusive: remove one"),
    )

    name: Annotated[str, NotEmpty, Schema(maxLength=256)]
    """Name of the Terraform variable."""
    value: Annotated[str, Schema(maxLength=16384)] = ""
    """The value; many users can read it. For a secret, use `valueFrom`."""
    value_from: ValueSource | None = None
    """Read the value from a Secret of the same namespace."""


Variables = Annotated[
    list[Variable],
    Schema(**{"maxItems": VARIABLES_LIMIT, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
]


class Promotion(Part, kw_only=True, frozen=True):
    """When an imported version becomes the active version."""

    policy: Annotated[str, Schema(enum=["OnSuccess", "Manual"])] = "OnSuccess"
    """
    `OnSuccess`: as soon as its import succeeded. `Manual`: when the annotation `coder.com/promote` has its name. The
    first version of a template is always active.
    """


class TemplateSpec(Part, kw_only=True, frozen=True):
    """Desired state of a template."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "oldSelf.hasValue() ? self.controlPlaneRef == oldSelf.value().controlPlaneRef"
            " && self.organizationName == oldSelf.value().organizationName : true",
            "controlPlaneRef and organizationName cannot be changed: create another CoderTemplate instead",
            only_at_creation=True,
        ),
    )

    control_plane_ref: ControlPlaneRef
    """Control plane that has the template. Cannot be changed."""
    organization_name: Annotated[str, NotEmpty, Schema(maxLength=128)] = "default"
    """Organization of the template in Coder. Cannot be changed."""
    name: TemplateName = ""
    """Name of the template in Coder. Defaults to the name of the object."""
    source: Source
    """The files of the template."""
    variables: Variables = []
    """Values of Terraform variables, for the import. A change imports a new version."""
    provisioner_tags: Annotated[dict[str, Annotated[str, Schema(maxLength=256)]], Schema(maxProperties=TAGS_LIMIT)] = {}
    """Tags of the provisioners that import the template and build its workspaces. A change imports a new version."""
    settings: Settings = Settings()
    """Settings of the template. A setting that is not set can be changed in Coder."""
    access: Access | None = None
    """Who can use and administer the template; needs a license. If not set, it can be changed in Coder."""
    promotion: Promotion = Promotion()
    """When an imported version becomes the active version."""
    drift: Annotated[str, Schema(enum=["Revert", "Report"])] = "Revert"
    """What happens when someone changes the active version, the settings or the access in Coder: `Revert` changes them
    back, `Report` only reports it in the condition `InSync`."""
    management_policy: Annotated[str, Schema(enum=["Full", "Observe"])] = "Full"
    """`Full`: create and change the template. `Observe`: only report how the template in Coder differs."""
    deletion_policy: Annotated[str, Schema(enum=["Retain", "Delete"])] = "Retain"
    """What happens to the template in Coder when this object is deleted. `Delete` waits, for a limited time, while
    workspaces use the template."""
    history: Annotated[Int32, Schema(minimum=1, maximum=1000)] = 10
    """Number of versions to keep. Older ones that no workspace uses are archived."""


class ActiveVersion(Part, kw_only=True, frozen=True):
    """The active version of the template."""

    id: str
    """ID of the version in Coder."""
    name: str = ""
    """Name of the version in Coder."""
    digest: str = ""
    """Digest of its files, variables and tags; empty if this object did not import it."""


class ImportingVersion(Part, kw_only=True, frozen=True):
    """A version that is being imported, or that was imported and is not active yet."""

    id: str
    """ID of the version in Coder."""
    name: str
    """Name of the version in Coder."""
    digest: str
    """Digest of its files, variables and tags."""
    since: datetime
    """When the operator first saw the version."""


class FailedVersion(Part, kw_only=True, frozen=True):
    """The last version whose import failed."""

    id: str = ""
    """ID of the version in Coder."""
    name: str
    """Name of the version in Coder."""
    digest: str
    """Digest of its files, variables and tags. They are not imported again until one of them changes."""
    message: str = ""
    """Error of the import."""
    code: str = ""
    """Code of the error, such as `REQUIRED_TEMPLATE_VARIABLES`."""


class SourceRevision(Part, kw_only=True, frozen=True):
    """The source that was read last."""

    revision: str
    """Revision of the source: of the Flux artifact, of the ConfigMap, or of this object."""
    digest: str
    """Digest of files, variables and tags."""


class TemplateStatus(Status, kw_only=True):
    """Observed state of a template."""

    template_id: str = ""
    """ID of the template in Coder."""
    organization_id: str = ""
    """ID of the organization in Coder."""
    active_version: ActiveVersion | None = None
    """The active version in Coder."""
    promoted_version: str = ""
    """ID of the version that this object made active last."""
    importing: ImportingVersion | None = None
    """The version that is being imported, or that is imported and not active yet."""
    failed: FailedVersion | None = None
    """The last version whose import failed, until one succeeds."""
    source: SourceRevision | None = None
    """The source that was read last."""


TEMPLATE_NAME = Check(
    "oldSelf.hasValue() || (has(self.spec.name) && self.spec.name != '')"
    " || (self.metadata.name.matches('^[a-z0-9]+(-[a-z0-9]+)*$') && size(self.metadata.name) <= 32"
    " && !(self.metadata.name in ['new', 'create']))",
    "the name must be at most 32 letters and digits joined by '-', because the template has the same name: rename it "
    "or set spec.name",
    only_at_creation=True,
)


class CoderTemplate(CoderObject, kw_only=True):
    """
    A template in Coder: imported from its source, made the active version when the import succeeded, and kept in sync.
    """

    checks: ClassVar[tuple[Check, ...]] = (TEMPLATE_NAME,)

    spec: TemplateSpec
    status: TemplateStatus = msgspec.field(default_factory=TemplateStatus)


TEMPLATE = Kind(GROUP, VERSION, "CoderTemplate", "codertemplates", CoderTemplate)

TEMPLATE_RESOURCE = Resource(
    TEMPLATE,
    short_name="ctpl",
    noun="template",
    columns=columns(
        Column("Control Plane", ".spec.controlPlaneRef.name"),
        Column("Active Version", ".status.activeVersion.name"),
        Column("Organization", ".spec.organizationName", wide=True),
        Column("Importing", ".status.importing.name", wide=True),
        Column("Revision", ".status.source.revision", wide=True),
    ),
    conditions=TemplateCondition,
    reasons=TEMPLATE_REASONS,
    events=TEMPLATE_EVENTS,
)
