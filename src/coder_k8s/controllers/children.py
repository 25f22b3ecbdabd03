"""The children of the objects of one controller."""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from coder_k8s.api import events
from coder_k8s.kube import errors
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.cache import Cache, Values
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured, key_of

from .labels import COMPONENT, INSTANCE
from .names import derived
from .repairs import restored

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
        self._applied = applier.applied

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
        return self.find(kind, _owner, owner.metadata.uid)

    def pods(self, component: str, owner: Object) -> list[Unstructured]:
        """The pods of a component of an object: those with its labels."""
        return self.find(POD, _component, (component, derived(owner.metadata.name), owner.metadata.namespace))

    def find(self, kind: Kind[Unstructured], values: Values[Unstructured], value: Hashable) -> list[Unstructured]:
        """The children of a kind for which `values` returns this value, by an index."""
        keys = sorted(self._caches[kind].index(values)[value])
        return [child for key in keys if (child := self.get(kind, key)) is not None]

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
        key = key_of(desired)
        before, known = self.get(kind, key), self._applied.uid(kind, owner, key)
        live = await self._applier.apply(kind, self._caches[kind], desired, owner, owned)
        note = ""
        if before is not None and (fields := restored(before, live, desired)):
            note = f"Restored {kind.name} {live.metadata.name}: another client changed {', '.join(fields)}"
        elif before is None and known not in ("", live.metadata.uid):
            note = f"Created {kind.name} {live.metadata.name} again: another client deleted it"
        if note:
            self._recorder.record(self._owners, owner, events.CHILD_RESTORED, note)
        return live

    async def merge(self, kind: Kind[Unstructured], live: Unstructured, patch: Manifest) -> Unstructured:
        """Change some fields of a child, which differs from its manifest until the next `apply`."""
        return await self._applier.merge(kind, self._caches[kind], live, patch)

    def forget(self, owner: Key) -> None:
        """Drop what is held in memory about the children of a deleted object."""
        self._applied.forget(owner)

    async def dry_run(self, kind: Kind[Unstructured], desired: Manifest) -> Unstructured | None:
        """What the API server would store, or the error of such a write; `None` if a webhook does not support it."""
        try:
            return await self._client.dry_run(kind, desired)
        except errors.Invalid as error:
            if "does not support dry run" not in error.message:
                raise
        return None

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

    async def delete(self, kind: Kind[Any], child: Unstructured, grace_seconds: int | None = None) -> None:
        """Delete the object with this UID, unless it is being deleted already. A pod has `grace_seconds` to stop."""
        if child.deleting:
            return
        self._applied.remove(kind, child.key)
        try:
            await self._client.delete(kind, child, grace_seconds=grace_seconds)
        except errors.NotFound:
            return
        log.info("Deleted %s %s", kind.name, child.key, extra={"reason": "Deleted"})

    async def patch_metadata(
        self, kind: Kind[Unstructured], seen: Unstructured, metadata: Mapping[str, Any]
    ) -> Unstructured | None:
        """Change labels or annotations of an object that another controller owns; None if it is gone."""
        patch = {"metadata": {**metadata, "uid": seen.metadata.uid}}
        try:
            request = self._client.merge(kind, seen.key, patch)
            return await self._caches[kind].write(seen.key, self._owners.name.lower(), request)
        except errors.NotFound:
            return None

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


def _owner(child: Unstructured) -> Iterable[str]:
    return [child.controller.uid] if child.controller else []


def _component(pod: Unstructured) -> Iterable[Hashable]:
    """What distinguishes the pods of an object from those of others; see `labels`."""
    labels = pod.metadata.labels
    yield labels.get(COMPONENT), labels.get(INSTANCE), pod.metadata.namespace
