"""The fields that every log record of a reconcile has."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from coder_k8s.kube.objects import Key


class _Reconcile(msgspec.Struct, frozen=True):
    fields: dict[str, str]
    started: float


_current: ContextVar[_Reconcile | None] = ContextVar("reconcile", default=None)


@contextmanager
def reconciling(controller: str, key: Key) -> Iterator[None]:
    """Mark what runs inside, and the tasks it starts, as one reconcile."""
    fields = {"controller": controller, "namespace": key.namespace, "object": key.name}
    token = _current.set(_Reconcile(fields, time.monotonic()))
    try:
        yield
    finally:
        _current.reset(token)


def fields() -> dict[str, str]:
    """Return the object of the current reconcile, and for how long it runs."""
    if (reconcile := _current.get()) is None:
        return {}
    return {**reconcile.fields, "duration": f"{time.monotonic() - reconcile.started:.3f}s"}
