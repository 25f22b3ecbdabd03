"""Finalizers: added before the first side effect, removed after the last.

Both writes hold only for the resourceVersion that was seen, so that a finalizer that someone else adds or removes
meanwhile is not undone; `Conflict` then tells the caller to look again. The kind must be one whose type keeps
`metadata.finalizers`, as `PartialObject` does not.
"""

from typing import TypeVar

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Object

T = TypeVar("T", bound=Object)


class FinalizerRefused(errors.Forbidden):
    """The API server, or a policy, does not let the operator add a finalizer."""

    def __init__(self, name: str, refusal: errors.ApiError) -> None:
        without = "Nothing that needs a cleanup is created without it"
        message = f"Finalizer {name} cannot be added to this object: {refusal.message}. {without}."
        super().__init__(refusal.status, refusal.reason, message)


async def add(client: Client, kind: Kind[T], seen: T, name: str) -> T:
    """The object with the finalizer; no request when it has it. Raises `FinalizerRefused`."""
    if name in seen.metadata.finalizers:
        return seen
    try:
        return await _write(client, kind, seen, [*seen.metadata.finalizers, name])
    except (errors.Forbidden, errors.Invalid) as refusal:
        raise FinalizerRefused(name, refusal) from None


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
