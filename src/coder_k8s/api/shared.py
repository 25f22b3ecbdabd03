"""What the three kinds have in common."""

import re
from typing import Annotated, Any, ClassVar

import msgspec

from coder_k8s.kube.conditions import Condition

from .markers import Check, Column, Core, Schema

GROUP = "coder.com"
VERSION = "v1alpha1"
CATEGORY = "coder"

ACRONYMS = {"id": "ID", "url": "URL"}


def wire_name(name: str) -> str:
    """camelCase as Kubernetes spells it: `coder_url` is `coderURL`."""
    first, *rest = name.split("_")
    return first + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


class Part(msgspec.Struct, rename=wire_name, omit_defaults=True, frozen=True, kw_only=True):
    """A piece of an object; an empty string, list or map means that the field is not set."""

    checks: ClassVar[tuple[Check, ...]] = ()


DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"


def _matches(pattern: str, message: str) -> Check:
    """A check of a text by a pattern; an empty text is one that was left out."""
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
# A spec is read by many, and status, events and logs repeat its URLs.
NoCredentials = Check(
    "!self.matches('^[^/?#]*//[^/?#]*@')", "must be without user and password: credentials belong in a Secret"
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
Duration = Annotated[
    str,
    Schema(maxLength=32),
    Check(
        r"self.matches(r'^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) > duration('0s')",
        "must be a positive duration with its unit, such as 720h or 90m",
    ),
]

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration: str) -> float:
    """How long a `Duration` is."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([a-z]+)", duration))


NotEmpty = Schema(minLength=1)
AsSet = Schema(**{"x-kubernetes-list-type": "set"})

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
    """How the Service can be reached."""
    port: Port = 80
    """Port of the Service."""
    annotations: dict[str, str] = {}
    """Annotations of the Service, such as those that a load balancer reads."""


class Pods(Part, kw_only=True, frozen=True):
    """What can be said about the pods of every kind."""

    extra_args: list[str] = []
    """Arguments that follow those of the operator."""
    extra_env: list[EnvVar] = []
    """Environment variables that follow those of the operator."""
    resources: Annotated[dict[str, Any], Core("ResourceRequirements")] = {}
    """Resources that the container asks for, and its limits."""
    image_pull_secrets: list[LocalObjectReference] = []
    """Secrets to pull the image with."""
    node_selector: dict[str, str] = {}
    """Labels that a node must have."""
    tolerations: list[Toleration] = []
    """Taints of nodes that the pods accept."""
    affinity: Annotated[dict[str, Any], Core("Affinity")] = {}
    """Where the pods should run, by nodes and by other pods."""
    volumes: list[Volume] = []
    """Volumes of the pods, beside those of the operator."""
    volume_mounts: list[VolumeMount] = []
    """Where the container mounts these volumes."""
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
                "description": "Name of the aspect.",
                "type": "string",
                "maxLength": 316,
                "pattern": rf"^({DNS_NAME}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
            "status": {"description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {
                "description": "One CamelCase word that says why.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "message": {"description": "The same for people.", "type": "string", "maxLength": 32768},
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "type": "string",
                "format": "date-time",
            },
            "observedGeneration": {
                "description": "The generation of the object that this was said about.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
        },
    ),
]


class Status(Part, kw_only=True, frozen=True):
    """What the operator tells about an object of any kind."""

    observed_generation: Int64 = 0
    """The generation of the object that this status is about."""
    phase: Annotated[str, Schema(enum=["Pending", "Ready"])] = ""
    """`Ready` once at least one pod is ready."""
    replicas: Int32 = 0
    """Pods that exist."""
    ready_replicas: Int32 = 0
    """Pods that are ready."""
    selector: str = ""
    """Label selector of the pods, for autoscalers."""
    conditions: Annotated[
        list[ConditionEntry], Schema(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
    ] = []
    """What holds and what does not; see the conditions below."""


def columns(*own: Column) -> tuple[Column, ...]:
    """The columns of every kind, with those of one kind before the age."""
    return (
        Column("Phase", ".status.phase"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Replicas", ".spec.replicas", "integer"),
        Column("Ready Replicas", ".status.readyReplicas", "integer"),
        *own,
        Column("Age", ".metadata.creationTimestamp", "date"),
    )


# Kubernetes before 1.36 has no Service whose name begins with a digit.
LETTER_FIRST = Check(
    "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]')",
    "the name must begin with a letter, because the Service takes it too: write coder-1 instead of 1",
    only_at_creation=True,
)
SERVICE_NAME = Check(
    "oldSelf.hasValue() || !self.metadata.name.contains('.')",
    "the Service takes the name of the object, and must not contain '.': write '-' instead",
    only_at_creation=True,
)
