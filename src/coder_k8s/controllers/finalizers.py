"""The finalizers of the objects of one controller."""

import logging
from typing import Generic, TypeVar

from coder_k8s.kube import finalizers
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Object

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


class Finalizers(Generic[T]):
    """Adds and removes finalizers; the cache has the object as written."""

    def __init__(self, client: Client, kind: Kind[T], cache: Cache[T], writer: str) -> None:
        self._client = client
        self._kind = kind
        self._cache = cache
        self._writer = writer

    async def add(self, seen: T, name: str) -> T:
        """The object with the finalizer; raises `FinalizerRefused`."""
        if name in seen.metadata.finalizers:
            return seen
        written = await finalizers.add(self._client, self._kind, seen, name)
        log.info("Added finalizer %s", name, extra={"reason": "FinalizerAdded"})
        return self._written(written)

    async def remove(self, seen: T, name: str) -> T:
        """The object without the finalizer."""
        if name not in seen.metadata.finalizers:
            return seen
        written = await finalizers.remove(self._client, self._kind, seen, name)
        log.info("Removed finalizer %s", name, extra={"reason": "FinalizerRemoved"})
        return self._written(written or seen)

    def _written(self, seen: T) -> T:
        self._cache.record_write(seen, self._writer)
        return seen
