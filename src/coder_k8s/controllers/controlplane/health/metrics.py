"""Metrics of the health of a control plane."""

from datetime import datetime

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Gauge, Registry

from .verdict import Verdict


class HealthMetrics:
    """Gauges by control plane, removed with it."""

    def __init__(self, registry: Registry) -> None:
        self._severity = Series(
            Gauge,
            registry,
            "coder_k8s_health_severity",
            "Result of Coder's health check by section: 0 ok, 1 warning, 2 error.",
            "section",
        )
        self._code = Series(
            Gauge, registry, "coder_k8s_health_code", "1 for each code that Coder's health check reports.", "code"
        )
        self._checked = Series(
            Gauge,
            registry,
            "coder_k8s_health_checked_timestamp_seconds",
            "When Coder last ran the health check that the operator read.",
        )

    def check(self, key: Key, checked: datetime) -> None:
        """Set the time of the last check."""
        self._checked.of(key).set(checked.timestamp())

    def set(self, key: Key, verdict: Verdict) -> None:
        """Set the result that the condition reports."""
        self._forget_result(key)
        for section, severity in verdict.sections:
            self._severity.of(key, section).set(severity)
        for code in verdict.codes:
            self._code.of(key, code).set(1)

    def forget(self, key: Key) -> None:
        self._forget_result(key)
        self._checked.forget(key)

    def _forget_result(self, key: Key) -> None:
        for gauge in (self._severity, self._code):
            gauge.forget(key)
