"""The series of a metric by object."""

from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from coder_k8s.kube.objects import Key

M = TypeVar("M", bound=MetricWrapperBase)
OBJECT = ("namespace", "name")
"""The first labels of each metric."""


class Series(Generic[M]):
    """Knows which series an object has: to remove them, the metric itself would search those of all objects."""

    def __init__(
        self, metric: type[M], registry: CollectorRegistry, name: str, documentation: str, *labels: str, **options: Any
    ) -> None:
        """The metric of this type; `labels` are the names of its other labels."""
        self._metric = metric(name, documentation, (*OBJECT, *labels), registry=registry, **options)
        self._labels: dict[Key, set[tuple[str, ...]]] = {}

    def of(self, key: Key, *labels: str) -> M:
        """The series of an object with these values of the other labels."""
        self._labels.setdefault(key, set()).add(labels)
        return self._metric.labels(*key, *labels)

    def forget(self, key: Key) -> None:
        """Remove all series of an object."""
        for labels in self._labels.pop(key, ()):
            self._metric.remove(*key, *labels)
