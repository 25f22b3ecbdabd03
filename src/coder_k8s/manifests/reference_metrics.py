"""The metrics reference page, generated from the registry of an assembled process."""

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
"""Suffixes that Prometheus appends to the name of a metric, by type."""


class Metric(NamedTuple):
    """A metric with its type, labels and help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series in a query."""
        return tuple(self.name + suffix for suffix in SUFFIXES.get(self.type, ("",)))


class RecordingRegistry(CollectorRegistry):
    """A registry that records its collectors."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def metrics() -> list[Metric]:
    """Return all metrics of a process, without any connection."""
    return asyncio.run(_assembled())


def page() -> str:
    rows = [
        [f"`{metric.series[0]}`", metric.type, ", ".join(f"`{label}`" for label in metric.labels), metric.help]
        for metric in sorted(metrics(), key=lambda metric: (not metric.name.startswith("coder_"), metric.name))
    ]
    blocks = [
        "# Metrics",
        "The metrics that the operator serves at `/metrics`, in the Prometheus format. Metrics that start with "
        "`controller_runtime_`, `workqueue_`, `rest_client_` and `leader_election_` have the same meaning as in "
        "operators built with controller-runtime, so dashboards for those operators work too.",
        "The labels `namespace` and `name` identify the object. Set `honorLabels: true` in a ServiceMonitor or "
        "PodMonitor, otherwise Prometheus renames them to `exported_namespace` and `exported_name`. Only the leader "
        "has the metrics of objects, except for `coder_k8s_object_*`.",
        "A histogram also has series with the suffixes `_sum` and `_count`. The [alerts](alerts.md) and the Grafana "
        "dashboard `dashboards/coder-k8s.json` use these metrics.",
        table(["name", "type", "labels", "description"], rows),
    ]
    return "\n\n".join(blocks) + "\n"


async def _assembled() -> list[Metric]:
    # The layer above: imported dynamically, because only the generators need it.
    app = import_module("coder_k8s.app")
    registry = RecordingRegistry()
    metrics = Metrics(registry)
    ProcessCollector(registry=registry)
    credential_cache = CredentialCache(StaticCredentials("none", time.time), None, time.time)
    nowhere = Config("https://kubernetes.invalid", "default", credential_cache)
    async with Http(nowhere, app.NAME, metrics) as http, Connections() as coderd:
        app.build_manager(Settings(leader_election_namespace="default"), http, coderd, metrics, identity="reference")
    return [metric for collector in registry.collectors for metric in _described(collector)]


def _described(collector: Collector) -> Iterator[Metric]:
    describe = getattr(collector, "describe", collector.collect)
    for family in describe():
        # The library has no public attribute for the labels. Our own collectors set them for each metric.
        labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
        yield Metric(family.name, family.type, labels, family.documentation)
