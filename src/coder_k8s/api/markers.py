"""What an annotation says beyond its type.

The generators of `coder_k8s.manifests` read these marks; decoding ignores them, so that an object which was stored
before a limit existed can still be read.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coder_k8s.kube.objects import Kind, Object


class Schema:
    """OpenAPI keywords that go into the schema as they are."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


@dataclass(frozen=True)
class Check:
    """A CEL rule that must hold, and what to write instead where it does not."""

    rule: str
    message: str
    only_at_creation: bool = False


@dataclass(frozen=True)
class Core:
    """A type of Kubernetes itself: passed through by the operator, exact in the schema."""

    name: str
    group: str = "core"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """How a kind presents itself to the people who use it."""

    kind: Kind[Object]
    short_name: str
    columns: tuple[Column, ...]
    conditions: type[StrEnum]
