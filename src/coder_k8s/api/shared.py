"""Types that all kinds share."""

import re
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

import msgspec

from coder_k8s.kube.conditions import Condition, share
from coder_k8s.kube.objects import Object

from .markers import Check, Column, Core, Schema

GROUP = "coder.com"
VERSION = "v1alpha1"
CATEGORY = "coder"
DEFAULT_IMAGE = "ghcr.io/coder/coder:latest"

ACRONYMS = {"id": "ID", "ttl": "TTL", "url": "URL"}


def wire_name(name: str) -> str:
    """camelCase as Kubernetes spells it: `coder_url` is `coderURL`."""
    first, *rest = name.split("_")
    return first + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


class Part(msgspec.Struct, rename=wire_name, omit_defaults=True, frozen=True, kw_only=True, gc=False):
    """A nested object; an empty string, list or map means that the field is not set."""

    checks: ClassVar[tuple[Check, ...]] = ()


DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"


def _matches(pattern: str, message: str) -> Check:
    """Check that a string matches a pattern; an empty string means that the field is not set."""
    return Check(f"self == '' || self.matches(r'^{pattern}$')", message)


Int32 = Annotated[int, Schema(format="int32")]
Int64 = Annotated[int, Schema(format="int64")]
Replicas = Annotated[Int32, Schema(minimum=0)]
Port = Annotated[Int32, Schema(minimum=1, maximum=65535)]
Text = Annotated[str, Schema(maxLength=1024)]

ObjectName = Annotated[
    str,
    Schema(maxLength=253),
    _matches(DNS_NAME, "must be lower-case letters, digits, '-' and '.', such as coder-token"),
]
LabelName = Annotated[
    str,
    Schema(maxLength=63),
    _matches(DNS_LABEL, "must be lower-case letters, digits and '-', such as coder-workspaces"),
]
SecretKeyName = Annotated[
    str,
    Schema(maxLength=253),
    _matches("[-._a-zA-Z0-9]+", "must be letters, digits, '-', '_' and '.', such as tls.crt"),
]
Host = Annotated[
    str,
    Schema(maxLength=253),
    _matches(DNS_NAME, "must be a host name in lower case without scheme or port, such as coder.example.com"),
]
WildcardHost = Annotated[
    str,
    Schema(maxLength=253),
    _matches(rf"\*\.{DNS_NAME}", "must be '*.' and a host name, such as *.coder.example.com"),
]
# Many users can read a spec, and status, events and logs contain its URLs.
NoCredentials = Check(
    "!self.matches('^[^/?#]*//[^/?#]*@')", "must not contain a user or password: put credentials into a Secret"
)
URL = Annotated[
    str,
    Schema(maxLength=2048),
    Check(
        "self == '' || (isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != '')",
        "must be an http or https URL with a host, such as https://coder.example.com",
    ),
    NoCredentials,
]
IS_DURATION = r"self.matches(r'^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$')"
Duration = Annotated[
    str,
    Schema(maxLength=32),
    Check(
        f"{IS_DURATION} && duration(self) > duration('0s')",
        "must be a positive duration with a unit, such as 720h or 90m",
    ),
]

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@lru_cache(maxsize=64)
def seconds(duration: str) -> float:
    """Convert a `Duration` to seconds."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([a-z]+)", duration))


NotEmpty = Schema(minLength=1)
AtLeastOne = Schema(minimum=1)
AsSet = Schema(**{"x-kubernetes-list-type": "set"})
Namespaces = Annotated[list[Annotated[LabelName, NotEmpty]], AsSet, Schema(maxItems=500)]

EnvVar = Annotated[dict[str, Any], Core("EnvVar")]
LocalObjectReference = Annotated[dict[str, Any], Core("LocalObjectReference")]
Toleration = Annotated[dict[str, Any], Core("Toleration")]
Volume = Annotated[dict[str, Any], Core("Volume")]
VolumeMount = Annotated[dict[str, Any], Core("VolumeMount")]


class SecretKey(Part, kw_only=True, frozen=True):
    """One value in a Secret of the same namespace."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the Secret."""
    key: Annotated[SecretKeyName, NotEmpty]
    """Key in the Secret."""


class TokenSecret(SecretKey, kw_only=True, frozen=True):
    """A Coder token in a Secret of the same namespace."""

    key: Annotated[SecretKeyName, NotEmpty] = "token"


class ControlPlaneRef(Part, kw_only=True, frozen=True):
    """A CoderControlPlane in the same namespace."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the CoderControlPlane."""


class Service(Part, kw_only=True, frozen=True):
    """The Service in front of the pods."""

    type: Annotated[str, Schema(enum=["ClusterIP", "NodePort", "LoadBalancer"])] = "ClusterIP"
    """Type of the Service."""
    port: Port = 80
    """Port of the Service."""
    annotations: dict[str, str] = {}
    """Annotations of the Service, for example for a load balancer."""


class Pods(Part, kw_only=True, frozen=True):
    """Pod settings that all kinds share."""

    extra_args: list[str] = []
    """Extra arguments, appended to the operator's own."""
    extra_env: list[EnvVar] = []
    """Extra environment variables, appended to the operator's own."""
    resources: Annotated[dict[str, Any], Core("ResourceRequirements")] = {}
    """Resource requests and limits of the container."""
    image_pull_secrets: list[LocalObjectReference] = []
    """Secrets with credentials to pull the image."""
    node_selector: dict[str, str] = {}
    """Labels that a node must have."""
    tolerations: list[Toleration] = []
    """Tolerations of the pods."""
    affinity: Annotated[dict[str, Any], Core("Affinity")] = {}
    """Scheduling constraints: node affinity, pod affinity and pod anti-affinity."""
    volumes: list[Volume] = []
    """Extra volumes of the pods, in addition to the operator's own."""
    volume_mounts: list[VolumeMount] = []
    """Extra volume mounts of the container."""
    security_context: Annotated[dict[str, Any], Core("SecurityContext")] = {}
    """Security context of the container."""
    pod_security_context: Annotated[dict[str, Any], Core("PodSecurityContext")] = {}
    """Security context of the pods."""


ConditionEntry = Annotated[
    Condition,
    # The limits of metav1.Condition, which Kubernetes does not publish in its own schema.
    Schema(
        type="object",
        required=["type", "status", "reason", "message", "lastTransitionTime"],
        properties={
            "type": {
                "description": "Type of the condition.",
                "type": "string",
                "maxLength": 316,
                "pattern": rf"^({DNS_NAME}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
            "status": {
                "description": "Status of the condition.",
                "type": "string",
                "enum": ["True", "False", "Unknown"],
            },
            "reason": {
                "description": "Reason for the status, in CamelCase.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "message": {"description": "Human-readable details.", "type": "string", "maxLength": 32768},
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "type": "string",
                "format": "date-time",
            },
            "observedGeneration": {
                "description": "Generation of the object that the condition is based on.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
        },
    ),
]


class Status(msgspec.Struct, rename=wire_name, omit_defaults=True, kw_only=True, gc=False):
    """Status fields that all kinds share."""

    observed_generation: Int64 = 0
    """Generation of the object that this status is based on."""
    phase: Annotated[str, Schema(enum=["Pending", "Ready"])] = ""
    """`Ready` once the object works; with pods, once at least one is ready."""
    conditions: Annotated[
        list[ConditionEntry], Schema(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
    ] = []
    """Current conditions (see the conditions reference)."""


class PodStatus(Status, kw_only=True):
    """Status fields of the kinds with pods."""

    replicas: Int32 = 0
    """Number of pods."""
    ready_replicas: Int32 = 0
    """Number of ready pods."""
    selector: str = ""
    """Label selector of the pods, for autoscalers."""


class CoderObject(Object, kw_only=True):
    """An object of any of our kinds."""

    spec: Any
    """Desired state."""
    status: Status = msgspec.field(default_factory=Status)
    """Observed state, set by the operator."""

    @classmethod
    def decode(cls, data: bytes | msgspec.Raw) -> Self:
        decoded = super().decode(data)
        share(decoded.status.conditions)
        return decoded


def pod_columns(*own: Column) -> tuple[Column, ...]:
    """Return the columns of a kind with pods."""
    return columns(
        Column("Replicas", ".spec.replicas", "integer"),
        Column("Ready Replicas", ".status.readyReplicas", "integer"),
        *own,
    )


def columns(*own: Column) -> tuple[Column, ...]:
    """Return the columns of every kind, with the columns of one kind before the age."""
    return (
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        *own,
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Phase", ".status.phase", wide=True),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
    )


# Before 1.36, Kubernetes rejects a Service whose name starts with a digit.
LETTER_FIRST = Check(
    "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]')",
    "the name must start with a letter, because the Service has the same name: use coder-1 instead of 1",
    only_at_creation=True,
)
SERVICE_NAME = Check(
    "oldSelf.hasValue() || !self.metadata.name.contains('.')",
    "the name must not contain '.', because the Service has the same name: use '-' instead",
    only_at_creation=True,
)
