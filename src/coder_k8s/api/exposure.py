# ruff: noqa: RUF012 - msgspec copies an empty default
"""How a control plane is exposed outside the cluster."""

from typing import Annotated, ClassVar

from .markers import Check, Schema
from .shared import Host, LabelName, NotEmpty, ObjectName, Part, WildcardHost


class IngressTLS(Part, kw_only=True, frozen=True):
    """TLS certificates of the Ingress."""

    secret_name: ObjectName = ""
    """Secret with the certificate of `host`."""
    wildcard_secret_name: ObjectName = ""
    """Secret with the certificate of `wildcardHost`."""


class Ingress(Part, kw_only=True, frozen=True):
    """An Ingress to the Service."""

    host: Annotated[Host, NotEmpty]
    """Host name of Coder."""
    wildcard_host: WildcardHost = ""
    """Wildcard host name for workspace applications."""
    class_name: ObjectName = ""
    """Ingress class. Defaults to the default class of the cluster."""
    annotations: dict[str, str] = {}
    """Annotations of the Ingress."""
    tls: IngressTLS | None = None
    """TLS certificates of the two hosts."""


class ParentRef(Part, kw_only=True, frozen=True):
    """A Gateway that the route attaches to."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the Gateway."""
    namespace: LabelName = ""
    """Namespace of the Gateway. Defaults to the namespace of the object."""
    section_name: ObjectName = ""
    """Listener of the Gateway. Defaults to all matching listeners."""


class Gateway(Part, kw_only=True, frozen=True):
    """An HTTPRoute to the Service."""

    host: Annotated[Host, NotEmpty]
    """Host name of Coder."""
    wildcard_host: WildcardHost = ""
    """Wildcard host name for workspace applications."""
    parent_refs: Annotated[list[ParentRef], Schema(minItems=1, maxItems=32)]
    """Gateways that the route attaches to."""


class Expose(Part, kw_only=True, frozen=True):
    """How Coder is exposed outside the cluster."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "!(has(self.ingress) && has(self.gateway))",
            "ingress and gateway are mutually exclusive: remove one of them",
        ),
    )

    ingress: Ingress | None = None
    """Expose Coder with an Ingress."""
    gateway: Gateway | None = None
    """Expose Coder with an HTTPRoute of the Gateway API."""
