"""The metric of objects that are Ready."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coder_k8s.kube.conditions import find
from coder_k8s.kube.informer import Informer


class ObjectReadiness(Collector):
    """Reads the caches whenever metrics are scraped."""

    _labelnames = ("kind", "namespace", "name", "reason")

    def __init__(self, informers: Sequence[Informer[Any]]) -> None:
        self._informers = informers

    def describe(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "coder_k8s_object_ready", "1 if the object is Ready, otherwise 0, with the reason.", labels=self._labelnames
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        [family] = self.describe()
        for informer in self._informers:
            for each in informer:
                ready = find(each.status.conditions, "Ready")
                value, reason = (ready.status == "True", ready.reason) if ready else (False, "")
                family.add_metric((informer.kind.name, *each.key, reason), value)
        yield family
