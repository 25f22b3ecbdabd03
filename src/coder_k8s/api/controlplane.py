# ruff: noqa: RUF012 - msgspec copies an empty default
"""CoderControlPlane: a Coder server and what belongs to it."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from coder_k8s.kube.objects import Kind, Object

from .conditions import ControlPlaneCondition
from .markers import Check, Column, Core, Resource, Schema
from .shared import (
    GROUP,
    LETTER_FIRST,
    SERVICE_NAME,
    VERSION,
    AsSet,
    Host,
    Int32,
    LabelName,
    NotEmpty,
    ObjectName,
    Part,
    Pods,
    Replicas,
    SecretKey,
    SecretKeyName,
    Service,
    Status,
    Text,
    TokenSecret,
    WildcardHost,
    columns,
)

EnvFromSource = Annotated[
    dict[str, Any],
    Core("EnvFromSource"),
    Check(
        "!(has(self.configMapRef) && has(self.secretRef))",
        "one source: write configMapRef and secretRef as two entries",
    ),
]
PolicyRule = Annotated[dict[str, Any], Core("PolicyRule", group="rbac.authorization.k8s.io")]
TopologySpreadConstraint = Annotated[dict[str, Any], Core("TopologySpreadConstraint")]

AtLeastOne = Schema(minimum=1)


class OperatorAccess(Part, kw_only=True, frozen=True):
    """How the operator gets into Coder's API."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "!(has(self.tokenSecretRef) && has(self.disabled) && self.disabled)",
            "disabled and tokenSecretRef exclude each other: remove one of the two",
        ),
    )

    disabled: bool = False
    """Make no operator user and no token. An existing token is revoked and its Secret deleted."""
    generated_token_secret_name: Annotated[ObjectName, Schema(maxLength=63)] = ""
    """Secret to keep the generated token in. Default: `<name>-operator-token`."""
    token_secret_ref: TokenSecret | None = None
    """Token of an owner to use, instead of making a user in Coder's database."""


class LicenseSecret(SecretKey, kw_only=True, frozen=True):
    """A license in a Secret of the same namespace."""

    key: Annotated[SecretKeyName, NotEmpty] = "license"


class ServiceAccount(Part, kw_only=True, frozen=True):
    """The ServiceAccount of the pods."""

    disable_create: bool = False
    """Use an account that exists instead of making one. An account made earlier is released, not deleted."""
    name: ObjectName = ""
    """Name of the account. Default: the name of the object."""
    annotations: dict[str, str] = {}
    """Annotations of the account, such as those for workload identity."""
    labels: dict[str, str] = {}
    """Labels of the account."""


class RBAC(Part, kw_only=True, frozen=True):
    """What Coder may do in the cluster to run workspaces."""

    workspace_perms: bool = True
    """Make a Role and a RoleBinding for pods and persistent volume claims."""
    enable_deployments: bool = True
    """Add Deployments to this Role."""
    extra_rules: list[PolicyRule] = []
    """Rules to add to this Role."""
    workspace_namespaces: Annotated[list[Annotated[LabelName, NotEmpty]], AsSet, Schema(maxItems=500)] = []
    """
    Namespaces that get the same Role and RoleBinding. Each must agree by the label
    `coder.com/workspaces-from: <namespace of the control plane>` (or `ANY`), or by the operator's own list.
    """


class TLS(Part, kw_only=True, frozen=True):
    """TLS served by Coder itself."""

    secret_names: Annotated[list[Annotated[ObjectName, NotEmpty]], Schema(maxItems=100)] = []
    """Secrets of type `kubernetes.io/tls`. One or more turn TLS on."""


class Certificates(Part, kw_only=True, frozen=True):
    """Certificate authorities that Coder trusts."""

    secrets: Annotated[list[SecretKey], Schema(maxItems=100)] = []
    """CA certificates, mounted under `/etc/ssl/certs`."""


class Probe(Part, kw_only=True, frozen=True):
    """An HTTP check of `/healthz`."""

    enabled: bool = True
    """Whether the pods have this probe."""
    initial_delay_seconds: Annotated[Int32, Schema(minimum=0)] = 0
    """Seconds from the start of the container to the first check."""
    period_seconds: Annotated[Int32, AtLeastOne] = 10
    """Seconds between checks."""
    timeout_seconds: Annotated[Int32, AtLeastOne] = 1
    """Seconds that an answer may take."""
    success_threshold: Annotated[Int32, AtLeastOne] = 1
    """Successes in a row after which a failed probe counts as passed."""
    failure_threshold: Annotated[Int32, AtLeastOne] = 3
    """Failures in a row after which the probe counts as failed."""


class LivenessProbe(Probe, kw_only=True, frozen=True):
    """An HTTP check of `/healthz` that restarts the container."""

    enabled: bool = False
    success_threshold: Annotated[Int32, Schema(minimum=1, maximum=1)] = 1
    """Kubernetes allows nothing but 1 here."""


class IngressTLS(Part, kw_only=True, frozen=True):
    """Certificates that the Ingress serves."""

    secret_name: ObjectName = ""
    """Secret with the certificate of `host`."""
    wildcard_secret_name: ObjectName = ""
    """Secret with the certificate of `wildcardHost`."""


class Ingress(Part, kw_only=True, frozen=True):
    """An Ingress to the Service."""

    host: Annotated[Host, NotEmpty]
    """Host name of Coder."""
    wildcard_host: WildcardHost = ""
    """Host names of workspace applications."""
    class_name: ObjectName = ""
    """Ingress class. Default: that of the cluster."""
    annotations: dict[str, str] = {}
    """Annotations of the Ingress."""
    tls: IngressTLS | None = None
    """Certificates for the two hosts."""


class ParentRef(Part, kw_only=True, frozen=True):
    """A Gateway that takes the route."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the Gateway."""
    namespace: LabelName = ""
    """Namespace of the Gateway. Default: that of the object."""
    section_name: ObjectName = ""
    """Listener of the Gateway. Default: every one that fits."""


class Gateway(Part, kw_only=True, frozen=True):
    """An HTTPRoute to the Service."""

    host: Annotated[Host, NotEmpty]
    """Host name of Coder."""
    wildcard_host: WildcardHost = ""
    """Host names of workspace applications."""
    parent_refs: Annotated[list[ParentRef], Schema(minItems=1, maxItems=32)]
    """Gateways that take the route, at least one."""


class Expose(Part, kw_only=True, frozen=True):
    """How Coder is reached from outside of the cluster."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check("!(has(self.ingress) && has(self.gateway))", "expose by ingress or by gateway: remove one of the two"),
    )

    ingress: Ingress | None = None
    """By an Ingress."""
    gateway: Gateway | None = None
    """By an HTTPRoute of the Gateway API."""


class ControlPlaneSpec(Pods, kw_only=True, frozen=True):
    """The Coder server that is wanted."""

    image: Text = "ghcr.io/coder/coder:latest"
    """Container image."""
    replicas: Replicas = 1
    """Number of pods."""
    service: Service = Service()
    """The Service, named after the object."""
    env_from: Annotated[list[EnvFromSource], Schema(maxItems=500)] = []
    """ConfigMaps and Secrets whose keys become environment variables. A change in one of them rolls the pods."""
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    """How the pods spread over zones and nodes."""
    operator_access: OperatorAccess = OperatorAccess()
    """How the operator gets into Coder's API."""
    license_secret_ref: LicenseSecret | None = None
    """License to keep uploaded."""
    service_account: ServiceAccount = ServiceAccount()
    """The ServiceAccount of the pods."""
    rbac: RBAC = RBAC()
    """What Coder may do in the cluster to run workspaces."""
    tls: TLS = TLS()
    """TLS served by Coder itself."""
    certs: Certificates = Certificates()
    """Certificate authorities that Coder trusts."""
    readiness_probe: Probe = Probe()
    """Whether a pod gets requests, by `/healthz`."""
    liveness_probe: LivenessProbe = LivenessProbe()
    """Whether a container is restarted, by `/healthz`."""
    env_use_cluster_access_url: bool = True
    """Set `CODER_ACCESS_URL` to the URL in the cluster, unless `extraEnv` or a source of `envFrom` defines it."""
    expose: Expose | None = None
    """How Coder is reached from outside of the cluster: by an Ingress or by a Gateway."""


class ControlPlaneStatus(Status, kw_only=True, frozen=True):
    """The Coder server as it is."""

    url: str = ""
    """URL in the cluster, always with its port."""
    image: str = ""
    """
    Image of all pods after the last complete rollout. Provisioners and workspace proxies without an image of their own
    follow it.
    """
    version: str = ""
    """Version that Coder reports of itself."""
    operator_access_ready: bool = False
    """Whether the operator has a token that works."""
    operator_token_secret_ref: SecretKey | None = None
    """Where the token of the operator is."""
    license_last_applied: datetime | None = None
    """When the license was last uploaded."""
    license_last_applied_hash: str = ""
    """SHA-256 of the license that was last uploaded, in hexadecimal digits."""
    license_tier: Annotated[str, Schema(enum=["none", "trial", "enterprise", "premium", "unknown"])] = ""
    """What the license covers."""
    license_expires: datetime | None = None
    """When the license runs out."""
    entitlements_last_checked: datetime | None = None
    """When Coder was last asked what it is entitled to."""
    external_provisioner_daemons_entitlement: Annotated[
        str, Schema(enum=["entitled", "grace_period", "not_entitled", "unknown"])
    ] = ""
    """Whether external provisioners may be used."""
    config_checksum: str = ""
    """Checksum of the ConfigMaps and Secrets that the environment comes from."""


class CoderControlPlane(Object, kw_only=True):
    """
    A Coder server: its Deployment, Service, ServiceAccount and Roles, the license, the operator's access to Coder's
    API, and optionally an Ingress or HTTPRoute.
    """

    checks: ClassVar[tuple[Check, ...]] = (SERVICE_NAME, LETTER_FIRST)

    spec: ControlPlaneSpec = ControlPlaneSpec()
    """What is wanted."""
    status: ControlPlaneStatus = ControlPlaneStatus()
    """What is; written by the operator."""


CONTROL_PLANE = Kind(GROUP, VERSION, "CoderControlPlane", "codercontrolplanes", CoderControlPlane)

CONTROL_PLANE_RESOURCE = Resource(
    CONTROL_PLANE,
    short_name="ccp",
    columns=columns(
        Column("Version", ".status.version"),
        Column("URL", ".status.url", wide=True),
        Column("Tier", ".status.licenseTier", wide=True),
    ),
    conditions=ControlPlaneCondition,
)
