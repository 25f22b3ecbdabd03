"""A cache of the objects of one kind, with read-your-writes.

The cache is fed by lists, by a watch, and by the responses to the operator's own writes. These arrive in any order.
The last sync version of a scope is the resourceVersion up to which the watch has delivered every event. It decides
which state is newest:

- a write at or before the last sync version is stale: the watch has delivered it, or a later state;
- a write after the last sync version is newer than the cache, and the watch will deliver it later;
- an object that is missing from a list at version R is deleted, unless it was written after R.

Events for a known resourceVersion are dropped. A write notifies every listener with the name of its writer, so that a
controller can ignore its own writes. The watch event of a write may arrive before the response to the write. So
notifications for an object are deferred while a write of it is in flight: then the writer is known.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from coder_k8s.kube.objects import Key, Object, newer

T = TypeVar("T", bound=Object)


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A created, updated or deleted object."""

    key: Key
    old: T | None
    new: T | None
    writer: str = ""
    """The controller that wrote the new state; empty when the change comes from a list or a watch."""
    from_list: bool = False
    """The change was found by a list, not by a watch."""


Listener = Callable[[Change[T]], None]
Values = Callable[[T], Iterable[Hashable]]
FEW = 4
_NONE: frozenset[Key] = frozenset()


class Index(Generic[T]):
    """Maps a value, such as the name of a Secret, to the objects that contain it.

    Most values have one object, such as the UID of an owner. Up to `FEW` of them are a tuple, a quarter of a set.
    """

    def __init__(self, values: Values[T]) -> None:
        self._values = values
        self._keys: dict[Hashable, tuple[Key, ...] | set[Key]] = {}

    def __getitem__(self, value: Hashable) -> frozenset[Key]:
        found = self._keys.get(value)
        return frozenset(found) if found else _NONE

    def _update(self, key: Key, old: T | None, new: T | None) -> None:
        before = set(self._values(old)) if old else ()
        after = set(self._values(new)) if new else ()
        if before == after:
            return
        for value in before:
            if value not in after:
                self._remove(value, key)
        for value in after:
            if value not in before:
                self._add(value, key)

    def _add(self, value: Hashable, key: Key) -> None:
        keys = self._keys.get(value, ())
        if isinstance(keys, set):
            keys.add(key)
        else:
            self._keys[value] = (*keys, key) if len(keys) < FEW else {*keys, key}

    def _remove(self, value: Hashable, key: Key) -> None:
        keys = self._keys[value]
        if isinstance(keys, set):
            keys.discard(key)
        else:
            keys = self._keys[value] = tuple(each for each in keys if each != key)
        if not keys:
            del self._keys[value]


class Cache(Generic[T]):
    """Holds objects by key, with indexes and listeners."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._versions: dict[str, str] = {}
        self._indexes: dict[Values[T], Index[T]] = {}
        self._listeners: list[Listener[T]] = []
        self._in_flight: dict[Key, Change[T] | None] = {}

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def index(self, values: Values[T]) -> Index[T]:
        """Return the index by these values; create it on the first call."""
        if values not in self._indexes:
            self._indexes[values] = index = Index(values)
            for key, known in self._objects.items():
                index._update(key, None, known)  # noqa: SLF001 - one mechanism in two classes
        return self._indexes[values]

    def listen(self, listener: Listener[T]) -> None:
        """Call the listener for every change from now on."""
        self._listeners.append(listener)

    def last_sync_version(self, scope: str) -> str:
        """Return the last sync version of a scope: a namespace, or "" for all. Empty before the first list."""
        return self._versions.get(scope, "")

    async def write(self, key: Key, writer: str, request: Awaitable[T]) -> T:
        """Send a write and put its result into the cache before this returns."""
        self._in_flight.setdefault(key, None)
        written: T | None = None
        try:
            written = await request
            self.record_write(written, writer)
        finally:
            self._notify_deferred(key, written, writer)
        return written

    def record_write(self, new: T, writer: str) -> None:
        """Put the response to a write into the cache, unless the watch has delivered it or a later state."""
        key = new.key
        if newer(new.metadata.resource_version, self.last_sync_version(self._scope(key))):
            self._put(key, new, writer=writer)

    def replace(self, scope: str, items: Iterable[T], resource_version: str) -> None:
        """Replace all objects of a scope by a complete list at a resourceVersion."""
        restored = newer(self.last_sync_version(scope), resource_version)  # etcd was restored from a backup
        self._versions[scope] = resource_version
        found = {item.key: item for item in items}
        for key, known in list(self._objects.items()):
            version = known.metadata.resource_version
            if scope in ("", key.namespace) and key not in found and (restored or not newer(version, resource_version)):
                self._remove(key, from_list=True)
        for key, item in found.items():
            self._put(key, item, from_list=True, force=restored)

    def update(self, scope: str, new: T) -> None:
        """Handle an ADDED or MODIFIED event."""
        self.bookmark(scope, new.metadata.resource_version)
        self._put(new.key, new)

    def delete(self, scope: str, last: Object) -> None:
        """Handle a DELETED event; the object has the resourceVersion of its deletion."""
        version = last.metadata.resource_version
        self.bookmark(scope, version)
        known = self._objects.get(last.key)
        if known is not None and not newer(known.metadata.resource_version, version):
            self._remove(last.key)

    def bookmark(self, scope: str, resource_version: str) -> None:
        """Handle a BOOKMARK event: all events up to this resourceVersion were delivered."""
        if newer(resource_version, self.last_sync_version(scope)):
            self._versions[scope] = resource_version

    def clear(self, scope: str) -> None:
        """Remove all objects and the last sync version of a scope, because the kind is no longer served."""
        for key in [key for key in self._objects if scope in ("", key.namespace)]:
            self._remove(key, from_list=True)
        self._versions[scope] = ""

    def _scope(self, key: Key) -> str:
        return key.namespace if key.namespace in self._versions else ""

    def _put(self, key: Key, new: T, *, writer: str = "", from_list: bool = False, force: bool = False) -> None:
        old = self._objects.get(key)
        if old is not None and not force and not newer(new.metadata.resource_version, old.metadata.resource_version):
            return
        self._objects[key] = new
        self._handle_change(Change(key, old, new, writer, from_list))

    def _remove(self, key: Key, *, from_list: bool = False) -> None:
        self._handle_change(Change(key, self._objects.pop(key), None, "", from_list))

    def _handle_change(self, change: Change[T]) -> None:
        for index in self._indexes.values():
            index._update(change.key, change.old, change.new)  # noqa: SLF001 - one mechanism in two classes
        if change.key in self._in_flight:
            deferred = self._in_flight[change.key]
            self._in_flight[change.key] = msgspec.structs.replace(change, old=deferred.old) if deferred else change
            return
        self._notify(change)

    def _notify(self, change: Change[T]) -> None:
        for listener in self._listeners:
            listener(change)

    def _notify_deferred(self, key: Key, written: T | None, writer: str) -> None:
        """Notify listeners of the changes during a write: up to what it has written, which has a writer, and after it.

        They need the written state, too: only that may show whom the object belongs to.
        """
        deferred = self._in_flight.pop(key, None)
        if deferred is None:
            if written is not None and key not in self._objects:
                self._notify(Change(key, written, None))  # it was deleted since, or the watch does not select it
            return
        if written is None:
            self._notify(msgspec.structs.replace(deferred, writer=""))
            return
        self._notify(msgspec.structs.replace(deferred, new=written, writer=writer))
        if deferred.new is None or deferred.new.metadata.resource_version != written.metadata.resource_version:
            self._notify(msgspec.structs.replace(deferred, old=written, writer=""))
