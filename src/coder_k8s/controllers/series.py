"""The series of a metric by object."""

from typing import Any, Generic

from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Metric, Registry
from coder_k8s.prometheus.metrics import S

OBJECT = ("namespace", "name")
"""The first labels of each metric."""


class Series(Generic[S]):
    """Knows which series an object has: to remove them, the metric itself would search those of all objects."""

    def __init__(
        self, metric: type[Metric[S]], registry: Registry, name: str, help_text: str, *labels: str, **options: Any
    ) -> None:
        """The metric of this type; `labels` are the names of its other labels."""
        self._metric: Metric[S] = metric(name, help_text, (*OBJECT, *labels), registry=registry, **options)
        self._labels: dict[Key, set[tuple[str, ...]]] = {}

    def of(self, key: Key, *labels: str) -> S:
        """The series of an object with these values of the other labels."""
        self._labels.setdefault(key, set()).add(labels)
        return self._metric.labels(key.namespace, key.name, *labels)

    def forget(self, key: Key) -> None:
        """Remove all series of an object."""
        for labels in self._labels.pop(key, ()):
            self._metric.remove(key.namespace, key.name, *labels)
