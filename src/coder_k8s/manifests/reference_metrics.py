"""The reference of metrics, from the registry of a process that is assembled for it."""

import asyncio
import time
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from coder_k8s.coderd.connections import Connections
from coder_k8s.kube.config import Config
from coder_k8s.kube.credentials import CredentialCache, StaticCredentials
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.settings import Settings

from .reference import table

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
"""What Prometheus appends to the name of a metric, by its type."""


class Metric(NamedTuple):
    """A metric as Prometheus knows it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names to write in a query."""
        return tuple(self.name + suffix for suffix in SUFFIXES.get(self.type, ("",)))


class Noting(CollectorRegistry):
    """A registry that can tell who is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def metrics() -> list[Metric]:
    """Every metric that a process has; nothing is connected to."""
    return asyncio.run(_assembled())


def page() -> str:
    rows = [
        [f"`{metric.series[0]}`", metric.type, ", ".join(f"`{label}`" for label in metric.labels), metric.help]
        for metric in sorted(metrics(), key=lambda metric: (not metric.name.startswith("coder_"), metric.name))
    ]
    blocks = [
        "# Metrics",
        "What `/metrics` of an operator shows, in the format of Prometheus. Names that begin with "
        "`controller_runtime_`, `workqueue_`, `rest_client_` and `leader_election_` mean what they mean in operators "
        "made with controller-runtime, so that dashboards for those work too.",
        "Labels `namespace` and `name` are those of the object. A ServiceMonitor or PodMonitor needs "
        "`honorLabels: true`, or Prometheus renames them to `exported_namespace` and `exported_name`. Of several "
        "processes only the one that leads has the metrics of objects, except for `coder_k8s_object_ready`.",
        "A histogram also has series that end in `_sum` and `_count`. [Alerts](alerts.md) use these metrics, and so "
        "does the Grafana dashboard `dashboards/coder-k8s.json`.",
        table(["name", "type", "labels", "meaning"], rows),
    ]
    return "\n\n".join(blocks) + "\n"


async def _assembled() -> list[Metric]:
    # Generators look at the whole program from outside: it is above them, so it is not imported as a part of them.
    app = import_module("coder_k8s.app")
    registry = Noting()
    ours = Metrics(registry)
    ProcessCollector(registry=registry)
    credential_cache = CredentialCache(StaticCredentials("nobody", time.time), None, time.time)
    nowhere = Config("https://kubernetes.invalid", "default", credential_cache)
    async with Http(nowhere, app.NAME, ours) as http, Connections() as coderd:
        app.build_manager(Settings(leader_election_namespace="default"), http, coderd, ours, identity="reference")
    return [metric for collector in registry.collectors for metric in _described(collector)]


def _described(collector: Collector) -> Iterator[Metric]:
    labels: tuple[str, ...] = getattr(collector, "_labelnames", ())  # the library has no other way to ask
    describe = getattr(collector, "describe", collector.collect)
    for family in describe():
        yield Metric(family.name, family.type, labels, family.documentation)
