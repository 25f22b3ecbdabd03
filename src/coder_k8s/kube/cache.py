"""The objects of a kind, at the newest state that anybody showed us.

Three sources tell a cache about objects, and they overtake each other: lists, the watch, and the answers to our own
writes, which enter at once so that the next reconcile reads what this one wrote. What keeps the cache right is the
*position* of the watch, the resourceVersion up to which it has told us everything:

- a write at or before the position is old news: the watch has shown it, or what came after it, a deletion perhaps;
- a write past the position is newer than anything the watch has said, and the watch will still come to it;
- an object that is missing from a list at version R is gone, unless we wrote it after R.

The echo of a known version is not news, and a write tells nobody but those who did not make it. An echo may even
overtake the answer to its write; so while we write an object, what the watch says of it is kept to be told with the
answer, when it is known whose doing it was.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from coder_k8s.kube.objects import Key, Object, newer

T = TypeVar("T", bound=Object)


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that came, changed or went, and how we know."""

    key: Key
    old: T | None
    new: T | None
    writer: str = ""
    """Which of our own controllers made it so; empty when the watch said it."""
    from_list: bool = False
    """Found by a list: many at once, and none of them news to the user."""


Listener = Callable[[Change[T]], None]
Values = Callable[[T], Iterable[Hashable]]


class Index(Generic[T]):
    """Which objects mention a value, such as the name of a Secret."""

    def __init__(self, values: Values[T]) -> None:
        self._values = values
        self._keys: dict[Hashable, set[Key]] = {}

    def __getitem__(self, value: Hashable) -> frozenset[Key]:
        return frozenset(self._keys.get(value, ()))

    def _update(self, key: Key, old: T | None, new: T | None) -> None:
        before = set(self._values(old)) if old else set()
        after = set(self._values(new)) if new else set()
        for value in before - after:
            self._keys[value].discard(key)
            if not self._keys[value]:
                del self._keys[value]
        for value in after - before:
            self._keys.setdefault(value, set()).add(key)


class Cache(Generic[T]):
    """Objects by key, with indexes and listeners."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._versions: dict[str, str] = {}
        self._indexes: dict[Values[T], Index[T]] = {}
        self._listeners: list[Listener[T]] = []
        self._writing: dict[Key, Change[T] | None] = {}

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def index(self, values: Values[T]) -> Index[T]:
        """The one index by these values, made when somebody first asks for it."""
        if values not in self._indexes:
            self._indexes[values] = index = Index(values)
            for key, known in self._objects.items():
                index._update(key, None, known)  # noqa: SLF001 - one mechanism in two classes
        return self._indexes[values]

    def listen(self, listener: Listener[T]) -> None:
        """Be told of every change from now on."""
        self._listeners.append(listener)

    def last_sync_version(self, scope: str) -> str:
        """Up to where the watch of a scope (a namespace, or all) has told us everything; empty before a list."""
        return self._versions.get(scope, "")

    async def write(self, key: Key, writer: str, request: Awaitable[T]) -> T:
        """Make a write of our own: its result is in the cache when this returns, and wakes all but the writer."""
        self._writing[key] = None
        version = ""
        try:
            new = await request
            version = new.metadata.resource_version
            self.record_write(new, writer)
        finally:
            self._notify_deferred(key, version, writer)
        return new

    def record_write(self, new: T, writer: str) -> None:
        """The answer to a write of our own."""
        if newer(new.metadata.resource_version, self.last_sync_version(self._scope(new.key))):
            self._put(new, writer=writer)

    def replace(self, scope: str, items: Iterable[T], resource_version: str) -> None:
        """A complete list of a scope; the watch goes on from its version."""
        restored = newer(self.last_sync_version(scope), resource_version)  # etcd was restored from a backup
        self._versions[scope] = resource_version
        found = {item.key: item for item in items}
        for key, known in list(self._objects.items()):
            version = known.metadata.resource_version
            if scope in ("", key.namespace) and key not in found and (restored or not newer(version, resource_version)):
                self._remove(key, from_list=True)
        for item in found.values():
            self._put(item, from_list=True, force=restored)

    def update(self, scope: str, new: T) -> None:
        """The watch says: this is how it is now."""
        self.bookmark(scope, new.metadata.resource_version)
        self._put(new)

    def delete(self, scope: str, last: Object) -> None:
        """The watch says: it was deleted at this version."""
        version = last.metadata.resource_version
        self.bookmark(scope, version)
        known = self._objects.get(last.key)
        if known is not None and not newer(known.metadata.resource_version, version):
            self._remove(last.key)

    def bookmark(self, scope: str, resource_version: str) -> None:
        """The watch says: nothing else happened up to here."""
        if newer(resource_version, self.last_sync_version(scope)):
            self._versions[scope] = resource_version

    def clear(self, scope: str) -> None:
        """Nobody serves this kind any more: there are no objects, and no position to go on from."""
        self.replace(scope, (), "")

    def _scope(self, key: Key) -> str:
        return key.namespace if key.namespace in self._versions else ""

    def _put(self, new: T, *, writer: str = "", from_list: bool = False, force: bool = False) -> None:
        key, old = new.key, self._objects.get(new.key)
        if old is not None and not force and not newer(new.metadata.resource_version, old.metadata.resource_version):
            return
        self._objects[key] = new
        self._notify(Change(key, old, new, writer, from_list))

    def _remove(self, key: Key, *, from_list: bool = False) -> None:
        self._notify(Change(key, self._objects.pop(key), None, "", from_list))

    def _notify(self, change: Change[T]) -> None:
        for index in self._indexes.values():
            index._update(change.key, change.old, change.new)  # noqa: SLF001 - one mechanism in two classes
        if change.key in self._writing:
            kept = self._writing[change.key]
            self._writing[change.key] = msgspec.structs.replace(change, old=kept.old) if kept else change
            return
        for listener in self._listeners:
            listener(change)

    def _notify_deferred(self, key: Key, version: str, writer: str) -> None:
        """What became of an object while we wrote it: our doing if that is its last version, else somebody else's."""
        kept = self._writing.pop(key, None)
        if kept is None:
            return
        ours = kept.new is not None and kept.new.metadata.resource_version == version
        for listener in self._listeners:
            listener(msgspec.structs.replace(kept, writer=writer if ours else ""))
