"""Applies the desired state of owned objects, and writes only if it differs from the live state."""

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from coder_k8s.kube import errors, managed_fields
from coder_k8s.kube.applied import AppliedChildren
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.comparison import contains
from coder_k8s.kube.objects import Kind, Manifest, Object, Unstructured, key_of

log = logging.getLogger(__name__)


class OwnedByOther(Exception):
    """An object of the desired name exists and has another owner."""

    def __init__(self, kind: Kind[Any], live: Unstructured) -> None:
        owner = live.controller
        ownership = f"belongs to {owner.kind} {owner.name}" if owner else "has no owner"
        super().__init__(f"{kind.name} {live.metadata.name} exists and {ownership}")
        self.kind = kind
        self.live = live


class Applier:
    """Creates and applies the children of one controller.

    Every child has a label with the digest of its manifest. (An annotation would start a new generation of an adopted
    Deployment, which looks like a rollout.) If the live object contains the manifest and the digest, no field was
    changed and none was removed from the desired state, so nothing is written. Nor is it as long as the live object is
    what the server stored for the same manifest: a repeat has no effect, also if a webhook changes what is written.
    A missing object is created, because a server-side apply is more expensive. Any other object is applied.
    """

    def __init__(self, client: Client, writer: str, label: str) -> None:
        self._client = client
        self._writer = writer
        self._label = label
        self.applied = AppliedChildren()

    async def apply(
        self,
        kind: Kind[Unstructured],
        cache: Cache[Unstructured],
        desired: Manifest,
        owner: Object,
        owned: Callable[[Unstructured], bool] | None = None,
    ) -> Unstructured:
        """Apply the desired manifest and return the live object.

        Raise `OwnedByOther` if `owned` rejects the live object. By default its controller must be the owner.
        """
        key, digest = key_of(desired), _digest(desired)
        desired = self._add_label(desired, digest)
        live = cache.get(key)
        if live is None:
            try:
                created = await cache.write(key, self._writer, self._client.create(kind, desired))
            except errors.AlreadyExists:
                live = await self._client.get(kind, key)  # the cache does not have it yet
            else:
                log.info("Created %s %s", kind.name, key, extra={"reason": "Created"})
                self.applied.record(kind, owner, created, digest)
                return created
        if not (owned(live) if owned else live.is_controlled_by(owner)):
            raise OwnedByOther(kind, live)
        if live.deleting and cache.get(key):  # without its labels it is applied: the cache must see its deletion
            self.applied.record(kind, owner, live)
            return live
        if not self.applied.is_recorded(kind, live, digest) and not contains(live.manifest, desired):
            live = await self._change(kind, cache, live, desired)
        self.applied.record(kind, owner, live, digest)
        return live

    async def merge(
        self, kind: Kind[Unstructured], cache: Cache[Unstructured], live: Unstructured, patch: Manifest
    ) -> Unstructured:
        """Change some fields of a live object, which differs from its manifest for a while.

        Raise `Conflict` if the object has changed.
        The digest is removed, so that the next `apply` writes again, and does not look like the repair of a change.
        """
        metadata = {"resourceVersion": live.metadata.resource_version, "labels": {self._label: None}}
        request = self._client.merge(kind, live.key, {**patch, "metadata": metadata})
        changed = await cache.write(live.key, self._writer, request)
        log.info("Changed %s %s", kind.name, live.key, extra={"reason": "Changed"})
        return changed

    async def _change(
        self, kind: Kind[Unstructured], cache: Cache[Unstructured], live: Unstructured, desired: Manifest
    ) -> Unstructured:
        if managed_fields.needs_upgrade(live.metadata, self._client.field_manager):
            await self._upgrade_managed_fields(kind, live)
        desired["metadata"]["uid"] = live.metadata.uid  # raises `Conflict` if the object was replaced
        changed = await cache.write(live.key, self._writer, self._client.apply(kind, desired))
        if changed.metadata.resource_version != live.metadata.resource_version:
            log.info("Changed %s %s", kind.name, live.key, extra={"reason": "Changed"})
        return changed

    def _add_label(self, desired: Manifest, digest: str) -> Manifest:
        metadata = desired["metadata"]
        return {**desired, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), self._label: digest}}}

    async def _upgrade_managed_fields(self, kind: Kind[Unstructured], live: Unstructured) -> None:
        manager = self._client.field_manager
        if patch := managed_fields.upgrade_operation(live.metadata, manager):
            with suppress(errors.Conflict, errors.Invalid):  # the object has changed
                await self._client.patch(kind, live.key, patch)
                return
        manifest = await self._client.get_manifest(kind, live.key)
        if manifest["metadata"]["uid"] != live.metadata.uid:
            raise errors.Conflict(
                409, "Conflict", f"{kind.name} {live.key} was replaced by another object of the same name"
            )
        if patch := managed_fields.upgrade_entries(manifest, manager):
            await self._client.patch(kind, live.key, patch)


def _digest(desired: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(desired, order="deterministic")).hexdigest()[:16]
