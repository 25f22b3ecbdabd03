"""The fields that every log record of a reconcile has."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from coder_k8s.kube.objects import Key


class _Reconcile(msgspec.Struct, frozen=True):
    controller: str
    key: Key
    started: float


_current: ContextVar[_Reconcile | None] = ContextVar("reconcile", default=None)


@contextmanager
def reconciling(controller: str, key: Key) -> Iterator[None]:
    """Mark what runs inside, and the tasks it starts, as one reconcile."""
    token = _current.set(_Reconcile(controller, key, time.monotonic()))
    try:
        yield
    finally:
        _current.reset(token)


def fields() -> dict[str, str]:
    """Return the object of the current reconcile, and for how long it runs."""
    if (reconcile := _current.get()) is None:
        return {}
    return {
        "controller": reconcile.controller,
        "namespace": reconcile.key.namespace,
        "object": reconcile.key.name,
        "duration": f"{time.monotonic() - reconcile.started:.3f}s",
    }
