"""Metrics of updates."""

from datetime import datetime

from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Counter, Gauge, Histogram, Registry

from .machine import INACTIVE

BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400)
OUTCOMES = {Step.COMPLETE: "completed", Step.REFUSED: "refused", Step.ROLLED_BACK: "rolled_back"}


class UpdateMetrics:
    """How long steps take, how updates end, and since when the current step runs."""

    def __init__(self, registry: Registry) -> None:
        self._seconds = Histogram(
            "coder_k8s_update_seconds",
            "Seconds that steps of updates took.",
            ["step"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._updates = Counter("coder_k8s_updates", "Updates of Coder that ended.", ["outcome"], registry=registry)
        self._since = Series(
            Gauge,
            registry,
            "coder_k8s_update_step_start_timestamp_seconds",
            "When the current step of an update started; absent while none runs.",
            "step",
        )

    def step(self, key: Key, before: UpdateStatus | None, after: UpdateStatus | None, now: datetime) -> None:
        """Count the end of a step."""
        self.forget(key)
        if before is not None and before.step not in INACTIVE and before.step_started_at is not None:
            self._seconds.labels(before.step).observe(max(0.0, (now - before.step_started_at).total_seconds()))
        active = before is not None and before.step not in INACTIVE
        outcome = OUTCOMES.get(Step(after.step)) if after is not None else "cancelled" if active else None
        if outcome:
            self._updates.labels(outcome).inc()

    def running(self, key: Key, update: UpdateStatus) -> None:
        """Show the current step."""
        if update.step not in INACTIVE and update.step_started_at is not None:
            self._since.of(key, update.step).set(update.step_started_at.timestamp())

    def forget(self, key: Key) -> None:
        self._since.forget(key)
