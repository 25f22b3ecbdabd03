"""Finalizers: added before the first side effect, removed after the last.

Both writes hold only for the resourceVersion that was seen, so that a finalizer that someone else adds or removes
meanwhile is not undone; `Conflict` then tells the caller to look again. The kind must be one whose type keeps
`metadata.finalizers`, as `Glimpse` does not.
"""

from typing import TypeVar

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Object

T = TypeVar("T", bound=Object)


async def add(client: Client, kind: Kind[T], seen: T, name: str) -> T:
    """The object with the finalizer; no request when it has it."""
    if name in seen.metadata.finalizers:
        return seen
    return await _write(client, kind, seen, [*seen.metadata.finalizers, name])


async def remove(client: Client, kind: Kind[T], seen: T, name: str) -> T | None:
    """The object without the finalizer, `None` if it is gone; no request when it never had it."""
    if name not in seen.metadata.finalizers:
        return seen
    try:
        return await _write(client, kind, seen, [other for other in seen.metadata.finalizers if other != name])
    except errors.NotFound:
        return None


async def _write(client: Client, kind: Kind[T], seen: T, finalizers: list[str]) -> T:
    patch = {"metadata": {"resourceVersion": seen.metadata.resource_version, "finalizers": finalizers}}
    return await client.merge(kind, seen.key, patch)
