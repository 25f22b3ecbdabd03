"""Daemons, rotations and the age of keys, for dashboards and alerts."""

from datetime import datetime

from coder_k8s.api.provisioner import Daemons
from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Counter, Gauge, Registry


class ProvisionerMetrics:
    """Series per provisioner, removed when it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._daemons = Series(
            Gauge, registry, "coder_k8s_provisioner_daemons", "Daemons, as reported by coderd.", "state"
        )
        self._created = Series(
            Gauge, registry, "coder_k8s_provisioner_key_created_timestamp_seconds", "When the key was created."
        )
        self._rotations = Series(Counter, registry, "coder_k8s_provisioner_key_rotations", "Key rotations.", "cause")

    def set_daemons(self, key: Key, daemons: Daemons) -> None:
        for state, number in (
            ("idle", daemons.connected - daemons.busy),
            ("busy", daemons.busy),
            ("offline", daemons.offline),
        ):
            self._daemons.of(key, state).set(number)

    def set_key_created(self, key: Key, created: datetime) -> None:
        self._created.of(key).set(created.timestamp())

    def count_rotation(self, key: Key, cause: str) -> None:
        self._rotations.of(key, cause).inc()

    def forget(self, key: Key) -> None:
        for metric in (self._daemons, self._created, self._rotations):
            metric.forget(key)
