"""Imports and reverted changes of templates, for dashboards and alerts."""

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Counter, Registry


class TemplateMetrics:
    """Series per template, removed when it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._imports = Series(
            Counter, registry, "coder_k8s_template_imports", "Imports of versions, by result.", "result"
        )
        self._reverted = Series(
            Counter,
            registry,
            "coder_k8s_template_drift_reverted",
            "Changes of templates in Coder that the operator reverted.",
        )

    def count_import(self, key: Key, result: str) -> None:
        self._imports.of(key, result).inc()

    def count_revert(self, key: Key) -> None:
        self._reverted.of(key).inc()

    def forget(self, key: Key) -> None:
        for metric in (self._imports, self._reverted):
            metric.forget(key)
