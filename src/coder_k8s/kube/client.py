"""The verbs of the Kubernetes API, on any kind."""

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
    """A part of a list, undecoded; every part of one list has the same resourceVersion."""

    items: list[msgspec.Raw]
    resource_version: str


class WatchEvent(msgspec.Struct, gc=False):
    """One line of a watch, its object undecoded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "proceed": "continue"}):
    resource_version: str = ""
    proceed: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(WatchEvent)


class Client:
    """Reads and writes objects under one field manager.

    A fence, if given, is asked before every write and raises to hold it back: a process that may have lost its Lease
    must not write, however late it learns of that.
    """

    def __init__(self, http: Http, field_manager: str, fence: Callable[[], None] | None = None) -> None:
        self._http = http
        self.field_manager = field_manager
        self._fence = fence

    async def get(self, kind: Kind[T], key: Key) -> T:
        if not key.name:
            raise errors.NotFound(404, "NotFound", f"no {kind.name} is without a name")
        body = await self._http.send("GET", kind.path(key), {}, _accept(kind))
        return _decode(kind, body)

    async def confirm(self, kind: Kind[Any], key: Key, seen: Object | None) -> None:
        """`Conflict` unless what has this name, if anything has, is now as it was seen.

        A cache may show the past, and the preconditions of a write hold for nothing but what is written. So this comes
        before what cannot be undone: a deletion because of a spec, or the end of something outside of Kubernetes.
        """
        known = seen.metadata.resource_version if seen else ""
        try:
            version = (await self.get(kind, key)).metadata.resource_version
        except errors.NotFound:
            version = ""
        if version != known:
            raise errors.Conflict(409, "Conflict", f"{kind.name} {key} is no longer as it was seen")

    async def get_manifest(self, kind: Kind[Any], key: Key) -> Manifest:
        """The object as the server shows it, `managedFields` included."""
        body = await self._http.send("GET", kind.path(key), {}, {"Accept": JSON})
        manifest: Manifest = _parse(body)
        return manifest

    async def list(
        self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Page]:
        """The pages of a consistent list; `Gone` when the server forgot it between two pages."""
        query = _query(limit=str(PAGE), labelSelector=labels, fieldSelector=fields)
        while True:
            body = await self._http.send("GET", kind.path(Key(namespace, "")), query, _accept(kind, "List"))
            try:
                page = deep_json.decode(_LIST.decode, body)
            except ValueError as trouble:
                raise errors.invalid_response(trouble) from trouble
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
        """What happened since a resourceVersion; ends after `seconds`, fails when silent for too long."""
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(seconds),
            labelSelector=labels,
            fieldSelector=fields,
        )
        rest = b""
        chunks = self._http.stream(kind.path(Key(namespace, "")), query, _accept(kind), idle_timeout)
        async with aclosing(chunks):
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _event(line)
        if rest.strip():
            raise errors.Unreachable(f"the watch of {kind} was cut in the middle of an event")

    async def create(self, kind: Kind[T], manifest: Manifest) -> T:
        path = kind.path(Key(key_of(manifest).namespace, ""))
        return await self._write(kind, "POST", path, JSON, manifest, fieldManager=self.field_manager)

    async def apply(self, kind: Kind[T], manifest: Manifest) -> T:
        """Server-side apply: these fields are ours now, whoever had them before."""
        path = kind.path(key_of(manifest))
        return await self._write(kind, "PATCH", path, APPLY, manifest, fieldManager=self.field_manager, force="true")

    async def dry_run(self, kind: Kind[Any], manifest: Manifest) -> None:
        """Raise what `apply` would, and change nothing: a dry run on the server."""
        query = {"fieldManager": self.field_manager, "force": "true", "dryRun": "All"}
        await self._write(kind, "PATCH", kind.path(key_of(manifest)), APPLY, manifest, **query)

    async def replace(self, kind: Kind[T], manifest: Manifest) -> T:
        """The whole object anew, unless it changed since its resourceVersion."""
        return await self._write(
            kind, "PUT", kind.path(key_of(manifest)), JSON, manifest, fieldManager=self.field_manager
        )

    async def merge(
        self, kind: Kind[T], key: Key, patch: Manifest, subresource: str = "", *, dry_run: bool = False
    ) -> T:
        """A merge patch; with `metadata.uid` or `metadata.resourceVersion` in it, `Conflict` if that is another."""
        query = {"fieldManager": self.field_manager} | ({"dryRun": "All"} if dry_run else {})
        return await self._write(kind, "PATCH", kind.path(key, subresource), MERGE, patch, **query)

    async def patch(self, kind: Kind[T], key: Key, operations: Sequence[Manifest]) -> T:
        """A JSON patch."""
        path = kind.path(key)
        return await self._write(kind, "PATCH", path, JSON_PATCH, list(operations), fieldManager=self.field_manager)

    async def delete(self, kind: Kind[Any], seen: Object, *, unchanged: bool = True) -> None:
        """Delete exactly the object that was seen; `unchanged` also refuses one that changed since."""
        preconditions = {"uid": seen.metadata.uid}
        if unchanged:
            preconditions["resourceVersion"] = seen.metadata.resource_version
        options = {"propagationPolicy": "Background", "preconditions": preconditions}
        await self._http.send("DELETE", kind.path(seen.key), {}, _json(JSON), msgspec.json.encode(options), self._fence)

    async def _write(self, kind: Kind[T], method: str, path: str, content_type: str, content: Any, **query: str) -> T:
        body = content
        if isinstance(content, dict) and content_type != MERGE:
            body = {"apiVersion": kind.api_version, "kind": kind.name, **content}
        query = {**query, "fieldValidation": "Strict"}  # else a server drops what it does not know
        answer = await self._http.send(
            method, path, query, _accept(kind) | _json(content_type), msgspec.json.encode(body), self._fence
        )
        return _decode(kind, answer)


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
    except (ValueError, KeyError, TypeError) as trouble:
        raise errors.invalid_response(trouble) from trouble


def _parse(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as trouble:
        raise errors.invalid_response(trouble) from trouble


def _event(line: bytes) -> WatchEvent:
    try:
        event = deep_json.decode(_EVENT.decode, line)
    except ValueError as trouble:
        raise errors.invalid_response(trouble) from trouble
    if event.type == "ERROR":
        raise errors.from_response(500, event.object)
    return event
