"""Queue, decisions and lost builds of autoscaled provisioners, for dashboards and alerts."""

from datetime import timedelta

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Counter, Gauge, Histogram, Registry

BUCKETS = (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800)


class ScalingMetrics:
    """Series per provisioner with `autoscaling`, removed when it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._desired = Series(
            Gauge, registry, "coder_k8s_provisioner_desired_replicas", "Pods that autoscaling asks for."
        )
        self._maximum = Series(Gauge, registry, "coder_k8s_provisioner_max_replicas", "maxReplicas of autoscaling.")
        self._pending = Series(
            Gauge,
            registry,
            "coder_k8s_provisioner_pending_jobs",
            "Jobs that wait in Coder and are assigned to the provisioner.",
        )
        self._busy = Series(Gauge, registry, "coder_k8s_provisioner_busy_pods", "Pods that run a job.")
        self._not_starting = Series(
            Gauge,
            registry,
            "coder_k8s_provisioner_pods_not_starting",
            "Pods that have not become ready within 3 minutes.",
        )
        self._wait = Series(
            Histogram,
            registry,
            "coder_k8s_provisioner_queue_wait_seconds",
            "Time that jobs waited before a daemon took them, for jobs that run for at least 10 seconds.",
            buckets=BUCKETS,
        )
        self._scaled = Series(
            Counter, registry, "coder_k8s_provisioner_scale", "Changes of the number of pods.", "direction", "cause"
        )
        self._lost = Series(
            Counter,
            registry,
            "coder_k8s_provisioner_builds_lost",
            "Builds whose pod is gone while Coder lists them as running. Must stay 0.",
        )

    def set_state(self, key: Key, *, maximum: int, pending: int, busy: int, not_starting: int) -> None:
        """Report the queue and the pods."""
        self._maximum.of(key).set(maximum)
        self._pending.of(key).set(pending)
        self._busy.of(key).set(busy)
        self._not_starting.of(key).set(not_starting)
        self._lost.of(key)  # so that it is 0, and not missing

    def set_desired(self, key: Key, desired: int) -> None:
        self._desired.of(key).set(desired)

    def observe_wait(self, key: Key, waited: timedelta) -> None:
        self._wait.of(key).observe(max(0.0, waited.total_seconds()))

    def count_change(self, key: Key, pods: int, cause: str) -> None:
        self._scaled.of(key, "up" if pods > 0 else "down", cause).inc()

    def count_lost(self, key: Key, builds: int) -> None:
        if builds:
            self._lost.of(key).inc(builds)

    def forget(self, key: Key) -> None:
        gauges = (self._desired, self._maximum, self._pending, self._busy, self._not_starting)
        for metric in (*gauges, self._wait, self._scaled, self._lost):
            metric.forget(key)
