"""Imports and reverted changes of templates, for dashboards and alerts."""

from prometheus_client import CollectorRegistry, Counter

from coder_k8s.kube.objects import Key


class TemplateMetrics:
    """Series per template, removed when it is deleted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ["namespace", "name"]
        self._imports = Counter(
            "coder_k8s_template_imports", "Imports of versions, by result.", [*names, "result"], registry=registry
        )
        self._reverted = Counter(
            "coder_k8s_template_drift_reverted",
            "Changes of templates in Coder that the operator reverted.",
            names,
            registry=registry,
        )

    def count_import(self, key: Key, result: str) -> None:
        self._imports.labels(*key, result).inc()

    def count_revert(self, key: Key) -> None:
        self._reverted.labels(*key).inc()

    def forget(self, key: Key) -> None:
        where = {"namespace": key.namespace, "name": key.name}
        for metric in (self._imports, self._reverted):
            metric.remove_by_labels(where)
