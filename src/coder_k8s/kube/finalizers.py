"""Adds and removes finalizers.

Both writes are conditional on the resourceVersion, so that they do not undo a concurrent change of the finalizers.
They raise `Conflict` if the object has changed. The type of the kind must decode `metadata.finalizers`, which
`PartialObject` does not.
"""

from typing import TypeVar

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Object

T = TypeVar("T", bound=Object)


class FinalizerRefused(errors.Forbidden):
    """The API server or an admission policy rejects the finalizer."""

    def __init__(self, name: str, error: errors.ApiError) -> None:
        consequence = "Nothing that needs a cleanup is created without it"
        message = f"Finalizer {name} cannot be added to this object: {error.message}. {consequence}."
        super().__init__(error.status, error.reason, message)


async def add(client: Client, kind: Kind[T], seen: T, name: str) -> T:
    """Add the finalizer and return the object; send no request if it is present. Raises `FinalizerRefused`."""
    if name in seen.metadata.finalizers:
        return seen
    try:
        return await _write(client, kind, seen, [*seen.metadata.finalizers, name])
    except (errors.Forbidden, errors.Invalid) as error:
        raise FinalizerRefused(name, error) from None


async def remove(client: Client, kind: Kind[T], seen: T, name: str) -> T | None:
    """Remove the finalizer and return the object, or None if it is deleted; send no request if it is absent."""
    if name not in seen.metadata.finalizers:
        return seen
    try:
        return await _write(client, kind, seen, [other for other in seen.metadata.finalizers if other != name])
    except errors.NotFound:
        return None


async def _write(client: Client, kind: Kind[T], seen: T, finalizers: list[str]) -> T:
    patch = {"metadata": {"resourceVersion": seen.metadata.resource_version, "finalizers": finalizers}}
    return await client.merge(kind, seen.key, patch)
