# ruff: noqa: RUF012, S105 - msgspec copies an empty default, names of secrets are not secrets
"""CoderProvisioner: external provisioner daemons of a control plane."""

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from coder_k8s.kube.objects import Kind

from .autoscaling import Autoscaling, AutoscalingStatus, Disruption
from .events.autoscaling import AUTOSCALING_EVENTS
from .events.provisioner import PROVISIONER_EVENTS
from .markers import Check, Column, Resource, Schema
from .reasons.autoscaling import AUTOSCALING_REASONS
from .reasons.provisioner import PROVISIONER_REASONS, ProvisionerCondition
from .shared import (
    GROUP,
    IS_DURATION,
    VERSION,
    CoderObject,
    ControlPlaneRef,
    Duration,
    Int32,
    Int64,
    Namespaces,
    NotEmpty,
    ObjectName,
    Part,
    Pods,
    PodStatus,
    Replicas,
    SecretKey,
    SecretKeyName,
    Text,
    TokenSecret,
    pod_columns,
)


class ProvisionerBootstrap(Part, kw_only=True, frozen=True):
    """Credentials for Coder's API."""

    credentials_secret_ref: TokenSecret
    """Secret with the session token of a user who can manage provisioner keys."""


class KeyRotation(Part, kw_only=True, frozen=True):
    """When a key is rotated regularly."""

    interval: Annotated[
        Duration,
        Check(f"!{IS_DURATION} || duration(self) >= duration('1h')", "must be at least 1h"),
    ]
    """Rotation interval of the key, such as `720h`; at least `1h`. Running builds are not interrupted."""


class ProvisionerKey(Part, kw_only=True, frozen=True):
    """The provisioner key and its Secret."""

    name: Annotated[
        str,
        Schema(maxLength=64),
        Check(
            "!(self.lowerAscii() in ['built-in', 'user-auth', 'psk'])",
            "built-in, user-auth and psk are reserved by Coder: choose another name",
        ),
        Check(
            "self == '' || (!(self in ['.', '..'])"
            r" && self.matches(r'^[^/\p{Cc}\p{Z}]([^/\p{Cc}]*[^/\p{Cc}\p{Z}])?$'))",
            "must not contain '/', control characters, or leading or trailing spaces: Coder cannot look up such a key",
        ),
    ] = ""
    """Name of the key in Coder. Defaults to the name of the object."""
    secret_name: ObjectName = ""
    """Name of the Secret for the key. Defaults to `<name>-provisioner-key`."""
    secret_key: Annotated[SecretKeyName, NotEmpty] = "key"
    """Key in this Secret."""
    rotation: KeyRotation | None = None
    """Regular rotation of the key. By default the key is rotated only when needed."""


class ProvisionerSpec(Pods, kw_only=True, frozen=True):
    """Desired state of provisioner daemons."""

    control_plane_ref: ControlPlaneRef
    """Control plane that the daemons connect to."""
    bootstrap: ProvisionerBootstrap | None = None
    """Credentials to manage the key. Defaults to the operator's access to the control plane."""
    organization_name: Annotated[str, Schema(maxLength=128)] = "default"
    """Organization of the daemons in Coder."""
    key: ProvisionerKey = ProvisionerKey()
    """The provisioner key and its Secret."""
    replicas: Replicas = 1
    """Number of pods. Each pod runs one build at a time. With `autoscaling`, the number to start with, and the minimum
    while the jobs cannot be read."""
    autoscaling: Autoscaling | None = None
    """Set the number of pods by the jobs that wait and run in Coder. By default it is `replicas`."""
    disruption: Disruption = Disruption()
    """How pods with a running build are protected; applies with `autoscaling`."""
    tags: dict[str, str] = {}
    """Tags of the daemons, which run jobs with these tags. A change rotates the key."""
    image: Text = ""
    """Container image. Defaults to the image of the control plane."""
    termination_grace_period_seconds: Annotated[Int64, Schema(minimum=0)] = 600
    """Seconds that a running build has to finish when its pod is stopped."""
    workspace_permissions: bool = True
    """Create a Role and a RoleBinding for pods and persistent volume claims."""
    enable_deployments: bool = False
    """Add Deployments to this Role."""
    workspace_namespaces: Namespaces = []
    """
    Other namespaces that get the same Role and RoleBinding, for templates that create workspaces there. Each must opt
    in with the label `coder.com/workspaces-from: <namespace of the provisioner>` (or `ANY`), or be allowed by the
    operator's flag `--allow-workspace-namespaces`.
    """


class RetiringKey(Part, kw_only=True, frozen=True):
    """A key that has been replaced and is not yet deleted in Coder."""

    name: str
    """Name of the key in Coder."""
    id: str = ""
    """ID of the key in Coder; empty if the response to its creation was lost."""
    organization_name: str = ""
    """Organization of the key."""
    organization_id: str = ""
    """ID of this organization in Coder."""
    control_plane_ref_name: str = ""
    """Control plane that the key was created in."""
    control_plane_url: str = ""
    """URL of that control plane."""
    since: datetime | None = None
    """When the key was replaced; without an ID, when it was requested."""
    tags_hash: str = ""
    """Hash of the tags in the request; set only without an ID."""


class Daemons(Part, kw_only=True, frozen=True, omit_defaults=False):
    """Daemons of this object, as reported by Coder."""

    connected: Int32 = 0
    """Number of connected daemons."""
    busy: Int32 = 0
    """Number of connected daemons that run a job."""
    offline: Int32 = 0
    """Number of disconnected daemons."""
    versions: list[str] = []
    """Versions of the daemons."""


class ProvisionerStatus(PodStatus, kw_only=True):
    """Observed state of provisioner daemons."""

    organization_id: str = ""
    """ID of the organization in Coder."""
    organization_name: str = ""
    """Organization that the key was created in."""
    provisioner_key_id: str = ""
    """ID of the key in Coder."""
    provisioner_key_name: str = ""
    """Name of the key in Coder; recorded before the key is created."""
    key_requested: datetime | None = None
    """When a key without a known ID was requested, by Coder's clock."""
    key_refused: bool = False
    """Whether Coder rejected the last request for the key."""
    key_created: datetime | None = None
    """When the key was created."""
    tags_hash: str = ""
    """Hash of the tags of the key."""
    control_plane_ref_name: str = ""
    """Control plane that the key was created in."""
    control_plane_url: str = ""
    """URL of this control plane."""
    secret_ref: SecretKey | None = None
    """Secret with the key."""
    retiring_keys: list[RetiringKey] = []
    """Keys that have been replaced and are not yet deleted in Coder."""
    daemons: Daemons | None = None
    """Daemons, as reported by Coder."""
    autoscaling: AutoscalingStatus | None = None
    """The last decision about the number of pods; only with `autoscaling`."""


DAEMON_NAME = Check(
    "oldSelf.hasValue() || !self.metadata.name.contains('.')",
    "the name must not contain '.', because a daemon takes its name from the pod up to the first '.': use '-' instead",
    only_at_creation=True,
)


KEY_NAME = Check(
    "oldSelf.hasValue() || !(self.metadata.name in ['built-in', 'user-auth', 'psk'])"
    " || (has(self.spec.key) && has(self.spec.key.name) && self.spec.key.name != '')",
    "built-in, user-auth and psk are reserved by Coder as names of keys: set spec.key.name",
    only_at_creation=True,
)


class CoderProvisioner(CoderObject, kw_only=True):
    """
    External provisioner daemons: a provisioner key in Coder, stored in a Secret and rotated when needed, and a
    Deployment of daemons that use it.
    """

    checks: ClassVar[tuple[Check, ...]] = (DAEMON_NAME, KEY_NAME)

    spec: ProvisionerSpec
    status: ProvisionerStatus = msgspec.field(default_factory=ProvisionerStatus)


PROVISIONER = Kind(GROUP, VERSION, "CoderProvisioner", "coderprovisioners", CoderProvisioner)

PROVISIONER_RESOURCE = Resource(
    PROVISIONER,
    short_name="cprov",
    noun="provisioner",
    columns=pod_columns(
        Column("Control Plane", ".spec.controlPlaneRef.name"),
        Column("Organization", ".spec.organizationName", wide=True),
        Column("Connected", ".status.daemons.connected", "integer", wide=True),
        Column("Busy", ".status.daemons.busy", "integer", wide=True),
        Column("Desired", ".status.autoscaling.desiredReplicas", "integer", wide=True),
        Column("Waiting", ".status.autoscaling.pendingJobs", "integer", wide=True),
        Column("Key", ".status.provisionerKeyName", wide=True),
    ),
    conditions=ProvisionerCondition,
    reasons={**PROVISIONER_REASONS, **AUTOSCALING_REASONS},
    events=(*PROVISIONER_EVENTS, *AUTOSCALING_EVENTS),
)
