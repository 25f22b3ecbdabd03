"""Shared objects of all controllers of a process."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from random import Random, SystemRandom
from typing import Any, TypeVar

import msgspec

from coder_k8s.coderd.connections import Connections
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind, Object
from coder_k8s.settings import Settings

from .queries import CoderdQueries

T = TypeVar("T", bound=Object)


class Runtime(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Connections, clock and one informer per kind."""

    client: Client
    coderd: Connections
    recorder: Recorder
    metrics: Metrics
    namespaces: Sequence[str] = ("",)
    workers: int = Settings.workers
    """Concurrent reconciles of each kind."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rng: Random = msgspec.field(default_factory=SystemRandom)
    informers: dict[Kind[Any], Informer[Any]] = {}

    @cached_property
    def queries(self) -> CoderdQueries:
        """The answers of coderd that objects share."""
        return CoderdQueries(self.now)

    @property
    def everywhere(self) -> bool:
        """Whether the operator watches the whole cluster, and may read cluster-scoped objects."""
        return "" in self.namespaces

    def informer(self, kind: Kind[T], *, labels: str = "", optional: bool = False) -> Informer[T]:
        """The informer of a kind; `labels` and `optional` of the first call apply."""
        if kind not in self.informers:
            self.informers[kind] = Informer(
                self.client, kind, self.namespaces, metrics=self.metrics, labels=labels, optional=optional
            )
        return self.informers[kind]
