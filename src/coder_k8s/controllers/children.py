"""The children of the objects of one controller."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from coder_k8s.api import events
from coder_k8s.kube import errors
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.comparison import differences
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured, key_of

from .labels import DIGEST

log = logging.getLogger(__name__)


class Children:
    """Finds, writes and removes children."""

    def __init__(
        self,
        client: Client,
        applier: Applier,
        caches: Mapping[Kind[Unstructured], Cache[Unstructured]],
        owners: Kind[Any],
        recorder: Recorder,
    ) -> None:
        self._client = client
        self._applier = applier
        self._caches = caches
        self._owners = owners
        self._recorder = recorder

    def get(self, kind: Kind[Unstructured], key: Key) -> Unstructured | None:
        return self._caches[kind].get(key)

    async def fetch(self, kind: Kind[Unstructured], key: Key, *, expected: bool) -> Unstructured | None:
        """A child. The cache has only those with our labels, so one that is `expected` is also read by its name."""
        found = self.get(kind, key)
        if found is None and expected:
            with suppress(errors.NotFound):
                return await self._client.get(kind, key)
        return found

    def owned(self, kind: Kind[Unstructured], owner: Object) -> list[Unstructured]:
        """The children of a kind that an object controls."""
        keys = sorted(self._caches[kind].index(_owner)[owner.metadata.uid])
        return [child for key in keys if (child := self.get(kind, key)) is not None]

    def labelled(self, kind: Kind[Unstructured], labels: Mapping[str, str], namespace: str = "") -> list[Unstructured]:
        """The children of a kind with these labels, in one namespace or in all."""
        index = self._caches[kind].index(_labels)
        keys: frozenset[Key] = frozenset.intersection(*(index[label] for label in labels.items()))
        here = sorted(key for key in keys if namespace in ("", key.namespace))
        return [child for key in here if (child := self.get(kind, key)) is not None]

    def cache(self, kind: Kind[Unstructured]) -> Cache[Unstructured]:
        return self._caches[kind]

    async def apply(
        self,
        kind: Kind[Unstructured],
        owner: Object,
        desired: Manifest,
        owned: Callable[[Unstructured], bool] | None = None,
    ) -> Unstructured:
        """Apply the desired manifest and return the live child; `owned` replaces the check of its owner."""
        before = self.get(kind, key_of(desired))
        live = await self._applier.apply(kind, self._caches[kind], desired, owner, owned)
        if before is not None and (fields := restored(before, live, desired)):
            note = f"Restored {kind.name} {live.metadata.name}: another client changed {', '.join(fields)}"
            self._recorder.record(self._owners, owner, events.CHILD_RESTORED, note)
        return live

    def forget(self, owner: Key) -> None:
        """Drop what is held in memory about the children of a deleted object."""
        self._applier.forget(owner)

    async def dry_run(self, kind: Kind[Unstructured], desired: Manifest) -> None:
        """Raise the error that a write of this child would; a webhook that does not support dry run is ignored."""
        try:
            await self._client.dry_run(kind, desired)
        except errors.Invalid as error:
            if "does not support dry run" not in error.message:
                raise

    async def prune(self, kind: Kind[Unstructured], owner: Object, keep: Iterable[str]) -> None:
        """Delete the children with other names, which the spec no longer requires."""
        kept = set(keep)
        left = [child for child in self.owned(kind, owner) if child.metadata.name not in kept and not child.deleting]
        if left:
            await self.confirm(owner)
        for child in left:
            await self.delete(kind, child)

    async def confirm(self, owner: Object) -> None:
        """Raise `Conflict` if the owner has changed, so that nothing is deleted because of an outdated spec."""
        await self._client.confirm(self._owners, owner.key, owner)

    async def confirm_child(self, kind: Kind[Unstructured], key: Key, beside: Object | None) -> None:
        """Raise `Conflict` unless a child is as in the cache, or missing as there.

        A child that lost its labels is not in the cache; `beside` has its metadata.
        """
        await self._client.confirm(kind, key, self.get(kind, key) or beside)

    async def delete(self, kind: Kind[Any], child: Unstructured) -> None:
        """Delete the object with this UID, unless it is being deleted already."""
        if child.deleting:
            return
        try:
            await self._client.delete(kind, child)
        except errors.NotFound:
            return
        log.info("Deleted %s %s", kind.name, child.key, extra={"reason": "Deleted"})

    async def release(self, kind: Kind[Unstructured], owner: Object, child: Unstructured) -> None:
        """Remove the owner reference of a child."""
        others = [
            msgspec.to_builtins(other) for other in child.metadata.owner_references if other.uid != owner.metadata.uid
        ]
        metadata = {"resourceVersion": child.metadata.resource_version, "ownerReferences": others or None}
        await self._client.merge(kind, child.key, {"metadata": metadata})
        log.info("Removed the owner reference of %s %s", kind.name, child.key, extra={"reason": "Released"})


def controlled_by(owner: Object, found: Unstructured | None) -> Unstructured | None:
    """The child, if `owner` controls it; an object of the same name that belongs to another owner does not count."""
    return found if found is not None and found.is_controlled_by(owner) else None


def restored(before: Unstructured, live: Unstructured, desired: Manifest) -> list[str]:
    """The fields that a write restored: the desired manifest is the same as at the last write, and the child was not.

    | digest of the manifest   | child before the write | child after it          | fields       |
    |--------------------------|------------------------|-------------------------|--------------|
    | another one              | any                    | any                     | none         |
    | the same                 | as desired             | as desired              | none         |
    | the same                 | changed                | as desired              | the changed  |
    | the same                 | changed                | changed again by a webhook | none      |
    """
    if live is before or before.metadata.labels.get(DIGEST) != live.metadata.labels.get(DIGEST):
        return []
    left = differences(live.manifest, desired)
    return [field for field in differences(before.manifest, desired) if field not in left]


def _owner(child: Unstructured) -> Iterable[str]:
    return [child.controller.uid] if child.controller else []


def _labels(child: Unstructured) -> Iterable[tuple[str, str]]:
    return child.metadata.labels.items()
