"""Health and tokens of workspace proxies, for dashboards and alerts."""

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Counter, Gauge, Registry


class ProxyMetrics:
    """Series per workspace proxy, removed when it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._healthy = Series(
            Gauge, registry, "coder_k8s_workspace_proxy_healthy", "1 if coderd reports the proxy as healthy."
        )
        self._tokens = Series(
            Counter,
            registry,
            "coder_k8s_workspace_proxy_tokens",
            "Tokens issued by coderd, by cause; issuing a token disconnects pods using the previous one.",
            "cause",
        )

    def set_health(self, key: Key, healthy: bool) -> None:
        self._healthy.of(key).set(healthy)

    def remove_health(self, key: Key) -> None:
        """Remove the health of a proxy that is scaled to zero: it is neither healthy nor unhealthy."""
        self._healthy.forget(key)

    def count_token(self, key: Key, cause: str) -> None:
        self._tokens.of(key, cause).inc()

    def forget(self, key: Key) -> None:
        for metric in (self._healthy, self._tokens):
            metric.forget(key)
