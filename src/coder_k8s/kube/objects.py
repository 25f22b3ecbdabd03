"""Identity and metadata of any Kubernetes object."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec

from coder_k8s.kube import deep_json, errors

Manifest = dict[str, Any]
"""An object as it goes over the wire, decoded no further than JSON."""


class Key(NamedTuple):
    """What an object of a known kind is called; the namespace is empty where the kind has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    """Who an object belongs to; garbage collection and adoption go by it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ManagedFields(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Who manages fields of an object and how; which fields is left on the server."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""


class ObjectMeta(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`metadata`, without what nobody here reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    managed_fields: tuple[ManagedFields, ...] = ()


class Object(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Any object, known by its metadata; a kind of its own adds `spec` and `status`."""

    metadata: ObjectMeta

    @classmethod
    def decode(cls, data: bytes | msgspec.Raw) -> Self:
        found: Self = deep_json.decode(partial(msgspec.json.decode, type=cls), data)
        _share(found.metadata)
        return found

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


_NO_TEXTS: dict[str, str] = {}
_NO_NAMES: list[Any] = []


class PartialObject(Object):
    """An object of which we only want to know that it is there, whose it is and that it changed.

    There may be thousands, most of them nobody's business. So those that have no labels and no owner share the empty
    containers, which would take as much room as all the rest.
    """

    @classmethod
    def decode(cls, data: bytes | msgspec.Raw) -> Self:
        seen = super().decode(data)
        meta = seen.metadata
        seen.metadata = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            resource_version=meta.resource_version,
            labels=meta.labels or _NO_TEXTS,
            annotations=_NO_TEXTS,
            owner_references=meta.owner_references or _NO_NAMES,
            finalizers=_NO_NAMES,
            deletion_timestamp=meta.deletion_timestamp,
        )
        return seen


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_META = msgspec.json.Decoder(ObjectMeta)


class Unstructured(Object):
    """An object that we read now and then: its content stays encoded, a tenth of the memory of dicts."""

    content: bytes

    @classmethod
    def decode(cls, data: bytes | msgspec.Raw) -> Self:
        fields = deep_json.decode(_FIELDS.decode, data)
        metadata = deep_json.decode(_META.decode, fields.pop("metadata"))
        _share(metadata)
        encoded = msgspec.json.encode(fields)
        return cls(metadata=metadata, content=bytes(memoryview(encoded)))  # a copy, without the encoder's spare room

    @property
    def manifest(self) -> Manifest:
        """The object without `managedFields`, and without `apiVersion` and `kind` if a list showed it; a fresh copy."""
        manifest: Manifest = msgspec.json.decode(self.content)
        metadata: Manifest = msgspec.to_builtins(self.metadata)
        metadata.pop("managedFields", None)
        return {**manifest, "metadata": metadata}


T = TypeVar("T", bound=Object, covariant=True)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of object: where the API server serves it and what it decodes to."""

    group: str
    version: str
    name: str
    plural: str
    type: type[T]
    namespaced: bool = True
    metadata_only: bool = False

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name} (metadata)" if self.metadata_only else name

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, key: Key, subresource: str = "") -> str:
        """The path of one object, or of the collection when the name is empty."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if key.namespace and self.namespaced:
            parts += ["namespaces", _segment(key.namespace)]
        parts += [part for part in (self.plural, _segment(key.name), subresource) if part]
        return "/".join(parts)

    def reference(self, owner: Object) -> OwnerReference:
        """An owner reference to an object of this kind that says: this one manages me."""
        return OwnerReference(
            api_version=self.api_version,
            kind=self.name,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )


def key_of(manifest: Mapping[str, Any]) -> Key:
    return Key(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])


def _share(meta: ObjectMeta) -> None:
    """Hold one copy of each text that many objects have in common."""
    meta.namespace = sys.intern(meta.namespace)
    for name, value in meta.labels.items():
        meta.labels[name] = sys.intern(value)
    for part in (*meta.owner_references, *meta.managed_fields):
        for field in part.__struct_fields__:
            if isinstance(value := getattr(part, field), str):
                msgspec.structs.force_setattr(part, field, sys.intern(value))


def newer(version: str, than: str) -> bool:
    """Whether one resourceVersion comes after another; none at all comes before every other.

    Kubernetes promises since 1.35 that they compare as integers, and never stored anything else before;
    a server that hands out opaque ones is taken at its word that different means newer.
    """
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return bool(version) and version != than


def timestamp(moment: datetime) -> str:
    """`metav1.Time`: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """`metav1.MicroTime`: the API server refuses anything but exactly six digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _segment(name: str) -> str:
    """A name as a part of a path: a spec may hold anything as a name, also what would lead into another namespace."""
    if name in (".", "..") or "/" in name or "%" in name:
        raise errors.NotFound(404, "NotFound", f"no object can have the name {name!r}")
    return quote(name)
