"""A client of a test that remembers its writes, so that the test can wait until an operator has seen them."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.objects import Key, Kind, Object, newer

T = TypeVar("T", bound=Object)

Seen = Callable[[Informer[Any]], bool]


class UserClient(Client):
    """A client whose last write of each object is known."""

    def __init__(self, http: Http, field_manager: str) -> None:
        super().__init__(http, field_manager)
        self._writes: dict[tuple[str, str, Key], Seen] = {}

    async def delete(
        self, kind: Kind[Any], seen: Object, *, unchanged: bool = True, grace_seconds: int | None = None
    ) -> None:
        await super().delete(kind, seen, unchanged=unchanged, grace_seconds=grace_seconds)
        self._writes[kind.group, kind.plural, seen.key] = lambda informer: is_deleted(informer, seen)

    async def _write(self, kind: Kind[T], method: str, path: str, content_type: str, content: Any, **query: str) -> T:
        written = await super()._write(kind, method, path, content_type, content, **query)
        if "dryRun" not in query:
            self._writes[kind.group, kind.plural, written.key] = lambda informer: is_current(informer, written)
        return written

    def seen_by(self, informers: Iterable[Informer[Any]]) -> bool:
        """Whether these caches have everything that was written, as far as they contain it."""
        by_resource: dict[tuple[str, str], list[Informer[Any]]] = {}
        for informer in informers:
            by_resource.setdefault((informer.kind.group, informer.kind.plural), []).append(informer)
        return all(
            seen(informer)
            for (group, plural, _), seen in self._writes.items()
            for informer in by_resource.get((group, plural), ())
        )


def is_current(informer: Informer[Any], written: Object) -> bool:
    """Whether a cache has this state of an object, or will not get it: it may watch other objects."""
    key, version = written.key, written.metadata.resource_version
    synced = next(filter(None, map(informer.last_sync_version, (key.namespace, ""))), None)
    if synced is None or not newer(version, synced):
        return True
    cached = informer.get(key)
    return not newer(version, cached.metadata.resource_version) if cached else not matches(informer.labels, written)


def matches(selector: str, written: Object) -> bool:
    """Whether an object has all the labels of a selector with `key=value`."""
    wanted = (part.split("=") for part in selector.split(",") if part)
    return all(written.metadata.labels.get(name) == value for name, value in wanted)


def is_deleted(informer: Informer[Any], last: Object) -> bool:
    cached = informer.get(last.key)
    return cached is None or cached.deleting or cached.metadata.uid != last.metadata.uid
