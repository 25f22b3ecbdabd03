"""A client for objects of any kind."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

import msgspec

from coder_k8s.kube import deep_json, errors
from coder_k8s.kube.http import Http
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, key_of

T = TypeVar("T", bound=Object)

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PAGE = 500


class Page(msgspec.Struct):
    """A page of a list with undecoded items; all pages have the same resourceVersion."""

    items: list[msgspec.Raw]
    resource_version: str


EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class WatchEvent(msgspec.Struct, gc=False):
    """A watch event. Its object is not decoded: most often, its key and resourceVersion are known already."""

    type: EventType
    key: Key
    resource_version: str
    line: bytes
    """The event as it was received."""

    @property
    def object(self) -> msgspec.Raw:
        """The undecoded object."""
        return deep_json.decode(_OBJECT.decode, self.line).object


class _Version(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Version = _Version()


class _VersionedEvent(msgspec.Struct, gc=False):
    type: EventType
    object: _Versioned


class _EventObject(msgspec.Struct, gc=False):
    object: msgspec.Raw


class _ErrorEvent(_EventObject, gc=False):
    type: Literal["ERROR"]


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "proceed": "continue"}):
    resource_version: str = ""
    proceed: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(_VersionedEvent)
_OBJECT = msgspec.json.Decoder(_EventObject)
_ERROR = msgspec.json.Decoder(_ErrorEvent)


class Client:
    """Reads and writes objects under one field manager.

    The fence, if any, is called before every write. It raises if the process may have lost its Lease.
    """

    def __init__(self, http: Http, field_manager: str, fence: Callable[[], None] | None = None) -> None:
        self._http = http
        self.field_manager = field_manager
        self._fence = fence

    async def get(self, kind: Kind[T], key: Key) -> T:
        if not key.name:
            raise errors.NotFound(404, "NotFound", f"{kind.name} without a name")
        body = await self._http.send("GET", kind.path(key), {}, _accept(kind))
        return _decode(kind, body)

    async def confirm(self, kind: Kind[Any], key: Key, seen: Object | None) -> None:
        """Raise `Conflict` if the object has changed since it was read from a cache; None means that it did not exist.

        Call this before an action that cannot be undone and that depends on another object, for example the deletion of
        a key in Coder. A cache may be stale, and the preconditions of a write cover only the written object.
        """
        cached = seen.metadata.resource_version if seen else ""
        try:
            version = (await self.get(kind, key)).metadata.resource_version
        except errors.NotFound:
            version = ""
        if version != cached:
            raise errors.Conflict(409, "Conflict", f"{kind.name} {key} has changed since it was read")

    async def get_manifest(self, kind: Kind[Any], key: Key) -> Manifest:
        """Return the object as plain JSON values, including `managedFields`."""
        body = await self._http.send("GET", kind.path(key), {}, {"Accept": JSON})
        manifest: Manifest = _parse(body)
        return manifest

    async def list(
        self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Page]:
        """Yield the pages of a consistent list; raise `Gone` if its resourceVersion expires between two pages."""
        query = _query(limit=str(PAGE), labelSelector=labels, fieldSelector=fields)
        while True:
            body = await self._http.send("GET", kind.path(Key(namespace, "")), query, _accept(kind, "List"))
            try:
                page = deep_json.decode(_LIST.decode, body)
            except ValueError as error:
                raise errors.invalid_response(error) from error
            yield Page(page.items or [], page.metadata.resource_version)
            if not page.metadata.proceed:
                return
            query["continue"] = page.metadata.proceed

    async def watch(
        self,
        kind: Kind[T],
        namespace: str,
        resource_version: str,
        *,
        seconds: int,
        idle_timeout: float,
        labels: str = "",
        fields: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events after a resourceVersion for `seconds`; raise if none arrives for `idle_timeout` seconds."""
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(seconds),
            labelSelector=labels,
            fieldSelector=fields,
        )
        partial = b""
        chunks = self._http.stream(kind.path(Key(namespace, "")), query, _accept(kind), idle_timeout)
        async with aclosing(chunks):
            async for chunk in chunks:
                *lines, partial = (partial + chunk).split(b"\n")
                for line in lines:
                    yield _event(line)
        if partial.strip():
            raise errors.Unreachable(f"the watch of {kind} ended in the middle of an event")

    async def create(self, kind: Kind[T], manifest: Manifest) -> T:
        path = kind.path(Key(key_of(manifest).namespace, ""))
        return await self._write(kind, "POST", path, JSON, manifest, fieldManager=self.field_manager)

    async def apply(self, kind: Kind[T], manifest: Manifest) -> T:
        """Apply the manifest with server-side apply, and take over fields of other managers."""
        path = kind.path(key_of(manifest))
        return await self._write(kind, "PATCH", path, APPLY, manifest, fieldManager=self.field_manager, force="true")

    async def dry_run(self, kind: Kind[T], manifest: Manifest) -> T:
        """Return what `apply` would store, or raise its error, without changing the object."""
        query = {"fieldManager": self.field_manager, "force": "true", "dryRun": "All"}
        return await self._write(kind, "PATCH", kind.path(key_of(manifest)), APPLY, manifest, **query)

    async def replace(self, kind: Kind[T], manifest: Manifest) -> T:
        """Replace the object; raise `Conflict` if it has changed since its resourceVersion."""
        return await self._write(
            kind, "PUT", kind.path(key_of(manifest)), JSON, manifest, fieldManager=self.field_manager
        )

    async def merge(
        self, kind: Kind[T], key: Key, patch: Manifest, subresource: str = "", *, dry_run: bool = False
    ) -> T:
        """Send a merge patch; a `metadata.uid` or `metadata.resourceVersion` in it is a precondition (`Conflict`)."""
        query = {"fieldManager": self.field_manager} | ({"dryRun": "All"} if dry_run else {})
        return await self._write(kind, "PATCH", kind.path(key, subresource), MERGE, patch, **query)

    async def patch(self, kind: Kind[T], key: Key, operations: Sequence[Manifest]) -> T:
        """Send a JSON patch."""
        path = kind.path(key)
        return await self._write(kind, "PATCH", path, JSON_PATCH, list(operations), fieldManager=self.field_manager)

    async def delete(
        self, kind: Kind[Any], seen: Object, *, unchanged: bool = True, grace_seconds: int | None = None
    ) -> None:
        """Delete the object if it has the same uid and, with `unchanged`, the same resourceVersion."""
        preconditions = {"uid": seen.metadata.uid}
        if unchanged:
            preconditions["resourceVersion"] = seen.metadata.resource_version
        options: Manifest = {"propagationPolicy": "Background", "preconditions": preconditions}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._http.send("DELETE", kind.path(seen.key), {}, _json(JSON), msgspec.json.encode(options), self._fence)

    async def _write(self, kind: Kind[T], method: str, path: str, content_type: str, content: Any, **query: str) -> T:
        body = content
        if isinstance(content, dict) and content_type != MERGE:
            body = {"apiVersion": kind.api_version, "kind": kind.name, **content}
        query = {**query, "fieldValidation": "Strict"}  # otherwise the server drops unknown fields
        response = await self._http.send(
            method, path, query, _accept(kind) | _json(content_type), msgspec.json.encode(body), self._fence
        )
        return _decode(kind, response)


def _query(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _accept(kind: Kind[Any], suffix: str = "") -> dict[str, str]:
    if kind.metadata_only:
        return {"Accept": f"{JSON};as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1"}
    return {"Accept": JSON}


def _json(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


def _decode(kind: Kind[T], body: bytes) -> T:
    try:
        return kind.type.decode(body)
    except (ValueError, KeyError, TypeError) as error:
        raise errors.invalid_response(error) from error


def _parse(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise errors.invalid_response(error) from error


def _event(line: bytes) -> WatchEvent:
    try:
        decoded = deep_json.decode(_EVENT.decode, line)
    except ValueError as error:
        raise _error_event(line) or errors.invalid_response(error) from error
    metadata = decoded.object.metadata
    event = WatchEvent(decoded.type, Key(metadata.namespace, metadata.name), metadata.resource_version, line)
    if event.type == "ERROR":
        raise errors.from_response(500, event.object)
    return event


def _error_event(line: bytes) -> errors.ApiError | None:
    """Return the error that an event of type ERROR contains; it may have any metadata."""
    try:
        event = deep_json.decode(_ERROR.decode, line)
    except ValueError:
        return None
    return errors.from_response(500, event.object)
