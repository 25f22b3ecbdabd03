# ruff: noqa: RUF012 - msgspec copies an empty default
"""CoderControlPlane: a Coder server and its Kubernetes objects."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec

from coder_k8s.kube.objects import Kind

from .events.controlplane import CONTROL_PLANE_EVENTS
from .exposure import Expose
from .health import Health, HealthStatus
from .jobs import UnservedJobs
from .markers import Check, Column, Core, Resource, Schema
from .probes import LivenessProbe, Probe
from .reasons.controlplane import CONTROL_PLANE_REASONS, ControlPlaneCondition
from .shared import (
    DEFAULT_IMAGE,
    GROUP,
    LETTER_FIRST,
    SERVICE_NAME,
    VERSION,
    CoderObject,
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
    Service,
    Text,
    TokenSecret,
    pod_columns,
)
from .updates import UpdatePolicy, UpdateStatus

EnvFromSource = Annotated[
    dict[str, Any],
    Core("EnvFromSource"),
    Check(
        "!(has(self.configMapRef) && has(self.secretRef))",
        "an entry has one source: write configMapRef and secretRef as two entries",
    ),
]
PolicyRule = Annotated[dict[str, Any], Core("PolicyRule", group="rbac.authorization.k8s.io")]
TopologySpreadConstraint = Annotated[dict[str, Any], Core("TopologySpreadConstraint")]


class OperatorAccess(Part, kw_only=True, frozen=True):
    """How the operator authenticates to Coder's API."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "!(has(self.tokenSecretRef) && has(self.disabled) && self.disabled)",
            "disabled and tokenSecretRef are mutually exclusive: remove one of them",
        ),
    )

    disabled: bool = False
    """Do not create an operator user and token. An existing token is revoked and its Secret deleted."""
    generated_token_secret_name: Annotated[ObjectName, Schema(maxLength=63)] = ""
    """Name of the Secret for the generated token. Defaults to `<name>-operator-token`."""
    token_secret_ref: TokenSecret | None = None
    """Secret with an owner token, used instead of a generated user and token."""


class LicenseSecret(SecretKey, kw_only=True, frozen=True):
    """A license in a Secret of the same namespace."""

    key: Annotated[SecretKeyName, NotEmpty] = "license"


class ServiceAccount(Part, kw_only=True, frozen=True):
    """The ServiceAccount of the pods."""

    disable_create: bool = False
    """Use an existing ServiceAccount. One that the operator created before is released, not deleted."""
    name: ObjectName = ""
    """Name of the ServiceAccount. Defaults to the name of the object."""
    annotations: dict[str, str] = {}
    """Annotations of the ServiceAccount, for example for workload identity."""
    labels: dict[str, str] = {}
    """Labels of the ServiceAccount."""


class RBAC(Part, kw_only=True, frozen=True):
    """Permissions of Coder in the cluster, to run workspaces."""

    workspace_perms: bool = True
    """Create a Role and a RoleBinding for pods and persistent volume claims."""
    enable_deployments: bool = True
    """Add Deployments to this Role."""
    extra_rules: list[PolicyRule] = []
    """Extra rules of this Role."""
    workspace_namespaces: Namespaces = []
    """
    Other namespaces that get the same Role and RoleBinding. Each must opt in with the label
    `coder.com/workspaces-from: <namespace of the control plane>` (or `ANY`), or be allowed by the operator's flag
    `--allow-workspace-namespaces`.
    """


class TLS(Part, kw_only=True, frozen=True):
    """TLS served by Coder itself."""

    secret_names: Annotated[list[Annotated[ObjectName, NotEmpty]], Schema(maxItems=100)] = []
    """Secrets of type `kubernetes.io/tls`. Coder serves TLS if there is at least one."""


class Certificates(Part, kw_only=True, frozen=True):
    """Certificate authorities that Coder trusts."""

    secrets: Annotated[list[SecretKey], Schema(maxItems=100)] = []
    """CA certificates, mounted in `/etc/ssl/certs`."""


class ControlPlaneSpec(Pods, kw_only=True, frozen=True):
    """Desired state of a Coder server."""

    image: Text = DEFAULT_IMAGE
    """Container image."""
    replicas: Replicas = 1
    """Number of pods."""
    service: Service = Service()
    """The Service, named after the object."""
    env_from: Annotated[list[EnvFromSource], Schema(maxItems=500)] = []
    """ConfigMaps and Secrets whose keys become environment variables. Changing one of them restarts the pods."""
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    """How the pods are spread across zones and nodes."""
    operator_access: OperatorAccess = OperatorAccess()
    """How the operator authenticates to Coder's API."""
    license_secret_ref: LicenseSecret | None = None
    """Secret with the license; kept applied."""
    service_account: ServiceAccount = ServiceAccount()
    """The ServiceAccount of the pods."""
    rbac: RBAC = RBAC()
    """Permissions of Coder in the cluster, to run workspaces."""
    tls: TLS = TLS()
    """TLS served by Coder itself."""
    certs: Certificates = Certificates()
    """Certificate authorities that Coder trusts."""
    readiness_probe: Probe = Probe()
    """Readiness probe of the pods."""
    liveness_probe: LivenessProbe = LivenessProbe()
    """Liveness probe of the pods."""
    env_use_cluster_access_url: bool = True
    """Set `CODER_ACCESS_URL` to the in-cluster URL, unless `extraEnv` or a source of `envFrom` sets it."""
    expose: Expose | None = None
    """How Coder is exposed outside the cluster: with an Ingress or a Gateway."""
    health: Health = Health()
    """How the health of Coder is checked."""
    update: UpdatePolicy = UpdatePolicy()
    """What happens when `image` changes. All other changes roll out at once."""
    termination_grace_period_seconds: Annotated[Int64, Schema(minimum=0)] = 60
    """
    Seconds that a pod has to stop. A Deployment that was created with the default of Kubernetes, 30 seconds, gets it
    with the next other change of its pods.
    """


class ControlPlaneStatus(PodStatus, kw_only=True):
    """Observed state of a Coder server."""

    url: str = ""
    """In-cluster URL, always with the port."""
    access_url: str = ""
    """
    URL for users: `CODER_ACCESS_URL` if the spec sets it, otherwise the exposed host, otherwise the in-cluster URL. A
    value in a Secret is not shown.
    """
    image: str = ""
    """
    Image of all pods after the last complete rollout. Used by provisioners and workspace proxies that do not set an
    image.
    """
    version: str = ""
    """Version that Coder reports."""
    operator_access_ready: bool = False
    """Whether the operator has a valid token."""
    operator_token_secret_ref: SecretKey | None = None
    """Secret with the operator's token."""
    license_last_applied: datetime | None = None
    """When the license was last uploaded."""
    license_last_applied_hash: str = ""
    """SHA-256 of the license that was last uploaded, in hexadecimal."""
    license_tier: Annotated[str, Schema(enum=["none", "trial", "enterprise", "premium", "unknown"])] = ""
    """Tier of the license."""
    license_expires: datetime | None = None
    """When the license expires."""
    entitlements_last_checked: datetime | None = None
    """When the entitlements were last queried from Coder."""
    external_provisioner_daemons_entitlement: Annotated[
        str, Schema(enum=["entitled", "grace_period", "not_entitled", "unknown"])
    ] = ""
    """Entitlement for external provisioner daemons."""
    config_checksum: str = ""
    """Checksum of the ConfigMaps and Secrets that provide environment variables."""
    health: HealthStatus | None = None
    """What Coder's own health check found; see the condition `Healthy`."""
    unserved_jobs: Annotated[list[UnservedJobs], Schema(maxItems=10)] = []
    """Jobs that no provisioner can run, the oldest first; at most 10 sets of tags. See the condition `JobsServed`."""
    update: UpdateStatus | None = None
    """The update that runs, or the last one."""


class CoderControlPlane(CoderObject, kw_only=True):
    """A Coder server: its Deployment, Service, ServiceAccount and Roles, the license, the operator's access to Coder's
    API, and optionally an Ingress or HTTPRoute.
    """

    checks: ClassVar[tuple[Check, ...]] = (SERVICE_NAME, LETTER_FIRST)

    spec: ControlPlaneSpec = ControlPlaneSpec()
    status: ControlPlaneStatus = msgspec.field(default_factory=ControlPlaneStatus)


CONTROL_PLANE = Kind(GROUP, VERSION, "CoderControlPlane", "codercontrolplanes", CoderControlPlane)
CONTROL_PLANE_RESOURCE = Resource(
    CONTROL_PLANE,
    short_name="ccp",
    noun="control plane",
    columns=pod_columns(
        Column("Version", ".status.version"),
        Column("Access URL", ".status.accessURL"),
        Column("Healthy", '.status.conditions[?(@.type=="Healthy")].status', wide=True),
        Column("URL", ".status.url", wide=True),
        Column("Tier", ".status.licenseTier", wide=True),
    ),
    conditions=ControlPlaneCondition,
    reasons=CONTROL_PLANE_REASONS,
    events=CONTROL_PLANE_EVENTS,
)
