"""The metrics of all objects: whether they are Ready, and their replicas."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coder_k8s.api import CoderObject, CoderProvisioner
from coder_k8s.api.shared import PodStatus
from coder_k8s.kube.conditions import find
from coder_k8s.kube.informer import Informer

LABELS = ("kind", "namespace", "name")


class ObjectMetrics(Collector):
    """Reads the caches whenever metrics are scraped."""

    def __init__(self, informers: Sequence[Informer[Any]]) -> None:
        self._informers = informers

    def describe(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "coder_k8s_object_ready",
            "1 if the object is Ready, otherwise 0, with the reason.",
            labels=(*LABELS, "reason"),
        )
        yield GaugeMetricFamily("coder_k8s_object_desired_replicas", "Pods that the object asks for.", labels=LABELS)
        yield GaugeMetricFamily("coder_k8s_object_ready_replicas", "Pods that are ready.", labels=LABELS)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        ready, desired_replicas, ready_replicas = self.describe()
        for informer in self._informers:
            for each in informer:
                labels = (informer.kind.name, *each.key)
                condition = find(each.status.conditions, "Ready")
                status, reason = (condition.status == "True", condition.reason) if condition else (False, "")
                ready.add_metric((*labels, reason), status)
                if isinstance(each.status, PodStatus):
                    desired_replicas.add_metric(labels, _desired(each))
                    ready_replicas.add_metric(labels, each.status.ready_replicas)
        yield from (ready, desired_replicas, ready_replicas)


def _desired(each: CoderObject) -> int:
    """The replicas of the spec, or what autoscaling asks for."""
    autoscaled = isinstance(each, CoderProvisioner) and each.spec.autoscaling is not None and each.status.autoscaling
    desired: int = autoscaled.desired_replicas if autoscaled else each.spec.replicas
    return desired
