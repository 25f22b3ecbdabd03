"""The metrics reference page, generated from the registry of an assembled process."""

import asyncio
import time
from importlib import import_module

import msgspec

from coder_k8s.coderd.connections import Connections
from coder_k8s.kube.config import Config
from coder_k8s.kube.credentials import CredentialCache, StaticCredentials
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.prometheus import ProcessMetrics, Registry
from coder_k8s.settings import Settings

from .reference import table

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
"""Suffixes that Prometheus appends to the name of a metric, by type."""


class Metric(msgspec.Struct, frozen=True):
    """A metric with its type, labels and help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series in a query."""
        return tuple(self.name + suffix for suffix in SUFFIXES.get(self.type, ("",)))


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
    registry = Registry()
    metrics = Metrics(registry)
    ProcessMetrics(registry)
    credential_cache = CredentialCache(StaticCredentials("none", time.time), None, time.time)
    nowhere = Config("https://kubernetes.invalid", "default", credential_cache)
    async with Http(nowhere, app.NAME, metrics) as http, Connections() as coderd:
        app.build_manager(Settings(leader_election_namespace="default"), http, coderd, metrics, identity="reference")
    return [Metric(each.name, each.type, tuple(each.labels), each.help) for each in registry.collect()]
