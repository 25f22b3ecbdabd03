"""The finalizers of the objects of one controller."""

from typing import Generic, TypeVar

from coder_k8s.kube import finalizers
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Object

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
        return self._written(await finalizers.add(self._client, self._kind, seen, name))

    async def remove(self, seen: T, name: str) -> T:
        """The object without the finalizer."""
        return self._written(await finalizers.remove(self._client, self._kind, seen, name) or seen)

    def _written(self, seen: T) -> T:
        self._cache.record_write(seen, self._writer)
        return seen
