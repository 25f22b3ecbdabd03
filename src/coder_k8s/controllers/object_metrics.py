"""The metrics of all objects: whether they are Ready, and their replicas."""

from collections.abc import Iterator, Sequence
from typing import Any

from coder_k8s.api import CoderObject, CoderProvisioner
from coder_k8s.api.shared import PodStatus
from coder_k8s.kube.conditions import find
from coder_k8s.kube.informer import Informer
from coder_k8s.prometheus import Family, Sample

LABELS = ("kind", "namespace", "name")


class ObjectMetrics:
    """Reads the caches whenever metrics are scraped."""

    def __init__(self, informers: Sequence[Informer[Any]]) -> None:
        self._informers = informers

    def collect(self) -> Iterator[Family]:
        ready: list[Sample] = []
        desired_replicas: list[Sample] = []
        ready_replicas: list[Sample] = []
        for informer in self._informers:
            for each in informer:
                labels = (informer.kind.name, each.metadata.namespace, each.metadata.name)
                condition = find(each.status.conditions, "Ready")
                status, reason = (condition.status == "True", condition.reason) if condition else (False, "")
                ready.append(Sample((*labels, reason), status))
                if isinstance(each.status, PodStatus):
                    desired_replicas.append(Sample(labels, _desired(each)))
                    ready_replicas.append(Sample(labels, each.status.ready_replicas))
        yield _gauge("ready", "1 if the object is Ready, otherwise 0, with the reason.", (*LABELS, "reason"), ready)
        yield _gauge("desired_replicas", "Pods that the object asks for.", LABELS, desired_replicas)
        yield _gauge("ready_replicas", "Pods that are ready.", LABELS, ready_replicas)


def _gauge(name: str, text: str, labels: Sequence[str], samples: list[Sample]) -> Family:
    return Family(f"coder_k8s_object_{name}", "gauge", text, labels, samples)


def _desired(each: CoderObject) -> int:
    """The replicas of the spec, or what autoscaling asks for."""
    autoscaled = isinstance(each, CoderProvisioner) and each.spec.autoscaling is not None and each.status.autoscaling
    desired: int = autoscaled.desired_replicas if autoscaled else each.spec.replicas
    return desired
