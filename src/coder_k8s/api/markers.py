"""Markers for annotations of fields, in addition to their types.

The generators of `coder_k8s.manifests` read them. Decoding ignores them, so that an object that was stored before a
limit existed can still be decoded.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from coder_k8s.kube.objects import Kind

from .events import Event
from .reasons import Reason


class Schema:
    """OpenAPI keywords that are copied into the schema."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


class Check(msgspec.Struct, frozen=True):
    """A CEL validation rule, and the message that describes how to satisfy it."""

    rule: str
    message: str
    only_at_creation: bool = False


class Core(msgspec.Struct, frozen=True):
    """A Kubernetes type: complete in the schema, passed through by the operator."""

    name: str
    group: str = "core"


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`; a wide one is shown with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Resource(msgspec.Struct, frozen=True):
    """A kind with its short name, columns and conditions."""

    kind: Kind[Any]
    short_name: str
    noun: str
    """What the command line calls an object of this kind, such as `control plane`."""
    columns: tuple[Column, ...]
    conditions: type[StrEnum]
    reasons: Mapping[StrEnum, tuple[Reason, ...]]
    """The reasons that each condition can have."""
    events: tuple[Event, ...]
    """The events that only this kind has."""

    @property
    def has_pods(self) -> bool:
        """Whether its objects have pods, so that they can be scaled."""
        return "replicas" in self.kind.type.__annotations__["spec"].__struct_fields__
