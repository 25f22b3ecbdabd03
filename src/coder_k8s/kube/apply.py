"""Brings owned objects to what we want, writing only when something is missing."""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from coder_k8s.kube import errors, managed_fields
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.comparison import contains
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured, key_of


class OwnedByOther(Exception):
    """An object of the wanted name belongs to somebody else."""

    def __init__(self, kind: Kind[Any], live: Unstructured) -> None:
        owner = live.controller
        belongs = f"belongs to {owner.kind} {owner.name}" if owner else "has no owner"
        super().__init__(f"{kind.name} {live.key} exists and {belongs}")
        self.kind = kind
        self.live = live


class Applier:
    """Writes children of one controller.

    Every child carries a digest of the manifest that it was made from, as a label: an annotation would count as a new
    generation of a Deployment, and look like a rollout when we take one over. So a live object that contains the
    manifest, digest included, is as we want it: nobody changed it, and we do not want less than last time. Then there
    is no write. Else it is a create where there is nothing yet, and a server-side apply otherwise, which costs the
    server more than a create even when it changes nothing.
    """

    def __init__(self, client: Client, writer: str, label: str) -> None:
        self._client = client
        self._writer = writer
        self._label = label
        self._refusals: dict[Key, dict[tuple[Kind[Unstructured], Key], tuple[str, str]]] = {}
        """By owner and child: the digest of what was written, and the resourceVersion of what the server made of it."""

    async def apply(
        self,
        kind: Kind[Unstructured],
        cache: Cache[Unstructured],
        want: Manifest,
        owner: Object,
        ours: Callable[[Unstructured], bool] | None = None,
    ) -> Unstructured:
        """The live object, brought to `want`; `ours` tells our objects from others, by default by their controller."""
        key, want = key_of(want), self._stamp(want)
        live = cache.get(key)
        if live is None:
            try:
                return await self._write(kind, cache, want, owner.key, self._client.create(kind, want))
            except errors.AlreadyExists:
                live = await self._client.get(kind, key)  # the cache has yet to hear of it
        if not (ours(live) if ours else live.is_controlled_by(owner)):
            raise OwnedByOther(kind, live)
        if live.deleting or self._is_applied(kind, live, want, owner.key):
            return live
        if managed_fields.needs_upgrade(live.metadata, self._client.field_manager):
            await self._take_over(kind, live)
        want["metadata"]["uid"] = live.metadata.uid  # `Conflict` when a namesake has taken its place
        return await self._write(kind, cache, want, owner.key, self._client.apply(kind, want))

    def forget(self, owner: Key) -> None:
        """Drop what is known about the children of an object that is gone."""
        self._refusals.pop(owner, None)

    def _is_applied(self, kind: Kind[Unstructured], live: Unstructured, want: Manifest, owner: Key) -> bool:
        """Whether nothing is to be written: all of it is there, or is what the server made of the same write."""
        written = (want["metadata"]["labels"][self._label], live.metadata.resource_version)
        return self._refusals.get(owner, {}).get((kind, live.key)) == written or contains(live.manifest, want)

    async def _write(
        self,
        kind: Kind[Unstructured],
        cache: Cache[Unstructured],
        want: Manifest,
        owner: Key,
        request: Awaitable[Unstructured],
    ) -> Unstructured:
        """A webhook or an unforeseen normal form may answer with something else: asking again would change nothing."""
        live = await cache.write(key_of(want), self._writer, request)
        known = self._refusals.get(owner, {})
        known.pop((kind, live.key), None)
        if not contains(live.manifest, want):
            known[kind, live.key] = (want["metadata"]["labels"][self._label], live.metadata.resource_version)
            self._refusals[owner] = known
        return live

    def _stamp(self, want: Manifest) -> Manifest:
        metadata = want["metadata"]
        labels = {**metadata.get("labels", {}), self._label: _digest(want)}
        return {**want, "metadata": {**metadata, "labels": labels}}

    async def _take_over(self, kind: Kind[Unstructured], live: Unstructured) -> None:
        manager = self._client.field_manager
        if patch := managed_fields.upgrade_operation(live.metadata, manager):
            with suppress(errors.Conflict, errors.Invalid):  # it changed since
                await self._client.patch(kind, live.key, patch)
                return
        manifest = await self._client.get_manifest(kind, live.key)
        if manifest["metadata"]["uid"] != live.metadata.uid:
            raise errors.Conflict(409, "Conflict", f"{kind.name} {live.key} was replaced by another of its name")
        if patch := managed_fields.upgrade_entries(manifest, manager):
            await self._client.patch(kind, live.key, patch)


def _digest(want: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(want, order="deterministic")).hexdigest()[:16]
