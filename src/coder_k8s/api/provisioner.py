# ruff: noqa: RUF012, S105 - msgspec copies an empty default, the names of secrets are no secrets
"""CoderProvisioner: external provisioner daemons of a control plane."""

from datetime import datetime
from typing import Annotated, ClassVar

from coder_k8s.kube.objects import Kind, Object

from .conditions import ProvisionerCondition
from .markers import Check, Column, Resource, Schema
from .shared import (
    GROUP,
    VERSION,
    ControlPlaneRef,
    Duration,
    Int32,
    Int64,
    NotEmpty,
    ObjectName,
    Part,
    Pods,
    Replicas,
    SecretKey,
    SecretKeyName,
    Status,
    Text,
    TokenSecret,
    columns,
)


class ProvisionerBootstrap(Part, kw_only=True, frozen=True):
    """Credentials of one's own for Coder's API."""

    credentials_secret_ref: TokenSecret
    """Session token of a user who may manage provisioner keys."""


class KeyRotation(Part, kw_only=True, frozen=True):
    """When a key is replaced although nothing else asks for it."""

    interval: Duration
    """Replace the key this often, such as `720h`. Running builds are not interrupted."""


class ProvisionerKey(Part, kw_only=True, frozen=True):
    """The provisioner key and the Secret that holds it."""

    name: Annotated[
        str,
        Schema(maxLength=64),
        Check(
            "!(self.lowerAscii() in ['built-in', 'user-auth', 'psk'])",
            "Coder keeps the names built-in, user-auth and psk for itself: choose another one",
        ),
        Check(
            "self == '' || (!(self in ['.', '..'])"
            r" && self.matches(r'^[^/\p{Cc}\p{Z}]([^/\p{Cc}]*[^/\p{Cc}\p{Z}])?$'))",
            "must be without '/', control characters, and spaces at its ends: Coder finds no key of such a name again",
        ),
    ] = ""
    """Name of the key in Coder. Default: the name of the object."""
    secret_name: ObjectName = ""
    """Secret to keep the key in. Default: `<name>-provisioner-key`."""
    secret_key: Annotated[SecretKeyName, NotEmpty] = "key"
    """Key in this Secret."""
    rotation: KeyRotation | None = None
    """When to replace the key. Default: only when something else asks for it."""


class ProvisionerSpec(Pods, kw_only=True, frozen=True):
    """The provisioner daemons that are wanted."""

    control_plane_ref: ControlPlaneRef
    """The control plane that the daemons work for."""
    bootstrap: ProvisionerBootstrap | None = None
    """Credentials to manage the key with. Default: the operator's access to the control plane."""
    organization_name: Annotated[str, Schema(maxLength=128)] = "default"
    """Organization in Coder that the daemons belong to."""
    key: ProvisionerKey = ProvisionerKey()
    """The provisioner key and the Secret that holds it."""
    replicas: Replicas = 1
    """Number of pods, and so of builds that run at the same time."""
    tags: dict[str, str] = {}
    """Tags of the daemons; Coder gives them the jobs that ask for these tags. A change replaces the key."""
    image: Text = ""
    """Container image. Default: that of the control plane."""
    termination_grace_period_seconds: Annotated[Int64, Schema(minimum=0)] = 600
    """Seconds that a running build gets when its pod is stopped."""
    workspace_permissions: bool = True
    """Make a Role and a RoleBinding for pods and persistent volume claims."""
    enable_deployments: bool = False
    """Add Deployments to this Role."""


class RetiringKey(Part, kw_only=True, frozen=True):
    """A key that was replaced and is not yet deleted in Coder."""

    name: str
    """Name of the key in Coder."""
    id: str = ""
    """ID of the key in Coder; empty when the key was requested and the answer got lost."""
    organization_name: str = ""
    """Organization that it belongs to."""
    organization_id: str = ""
    """ID of this organization in Coder."""
    control_plane_ref_name: str = ""
    """Control plane that it was made at."""
    control_plane_url: str = ""
    """URL of that control plane."""
    since: datetime | None = None
    """When it was replaced; without an ID, when it was requested."""
    tags_hash: str = ""
    """Hash of the tags that it was requested with; only without an ID."""


class Daemons(Part, kw_only=True, frozen=True):
    """The daemons of this object as Coder sees them."""

    connected: Int32 = 0
    """Daemons that are connected."""
    busy: Int32 = 0
    """Those of them that run a job."""
    offline: Int32 = 0
    """Daemons that Coder has lost sight of."""
    versions: list[str] = []
    """Versions that the daemons report."""


class ProvisionerStatus(Status, kw_only=True, frozen=True):
    """The provisioner daemons as they are."""

    organization_id: str = ""
    """ID of the organization in Coder."""
    organization_name: str = ""
    """Organization that the key was made in."""
    provisioner_key_id: str = ""
    """ID of the key in Coder."""
    provisioner_key_name: str = ""
    """Name of the key in Coder; recorded before the key is made."""
    key_requested: datetime | None = None
    """When a key whose ID is not known yet was requested, by the clock of Coder."""
    key_refused: bool = False
    """Coder refused the last request for the key, so it made none."""
    key_created: datetime | None = None
    """When the key was made."""
    tags_hash: str = ""
    """Hash of the tags that the key was made with."""
    control_plane_ref_name: str = ""
    """Control plane that the key was made at."""
    control_plane_url: str = ""
    """URL of this control plane."""
    secret_ref: SecretKey | None = None
    """Where the key is."""
    retiring_keys: list[RetiringKey] = []
    """Keys that were replaced and are not yet deleted in Coder."""
    daemons: Daemons | None = None
    """The daemons as Coder sees them."""


DAEMON_NAME = Check(
    "oldSelf.hasValue() || !self.metadata.name.contains('.')",
    "daemons are named after their pods, up to the first '.': write '-' instead",
    only_at_creation=True,
)


KEY_NAME = Check(
    "oldSelf.hasValue() || !(self.metadata.name in ['built-in', 'user-auth', 'psk'])"
    " || (has(self.spec.key) && has(self.spec.key.name) && self.spec.key.name != '')",
    "the key takes the name of the object, and Coder keeps built-in, user-auth and psk for itself: set spec.key.name",
    only_at_creation=True,
)


class CoderProvisioner(Object, kw_only=True):
    """
    External provisioner daemons: a provisioner key in Coder, kept in a Secret and replaced when needed, and a
    Deployment of daemons that use it.
    """

    checks: ClassVar[tuple[Check, ...]] = (DAEMON_NAME, KEY_NAME)

    spec: ProvisionerSpec
    """What is wanted."""
    status: ProvisionerStatus = ProvisionerStatus()
    """What is; written by the operator."""


PROVISIONER = Kind(GROUP, VERSION, "CoderProvisioner", "coderprovisioners", CoderProvisioner)

PROVISIONER_RESOURCE = Resource(
    PROVISIONER,
    short_name="cprov",
    columns=columns(
        Column("Control Plane", ".spec.controlPlaneRef.name"),
        Column("Organization", ".spec.organizationName", wide=True),
        Column("Connected", ".status.daemons.connected", "integer", wide=True),
        Column("Busy", ".status.daemons.busy", "integer", wide=True),
        Column("Key", ".status.provisionerKeyName", wide=True),
    ),
    conditions=ProvisionerCondition,
)
