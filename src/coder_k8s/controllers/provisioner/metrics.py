"""Daemons, rotations and the age of keys, for dashboards and alerts."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from coder_k8s.api.provisioner import Daemons
from coder_k8s.kube.objects import Key


class ProvisionerMetrics:
    """Series per provisioner, removed when it is deleted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ["namespace", "name"]
        self._daemons = Gauge(
            "coder_k8s_provisioner_daemons", "Daemons, as reported by coderd.", [*names, "state"], registry=registry
        )
        self._created = Gauge(
            "coder_k8s_provisioner_key_created_timestamp_seconds", "When the key was created.", names, registry=registry
        )
        self._rotations = Counter(
            "coder_k8s_provisioner_key_rotations", "Key rotations.", [*names, "cause"], registry=registry
        )

    def set_daemons(self, key: Key, daemons: Daemons) -> None:
        for state, number in (
            ("idle", daemons.connected - daemons.busy),
            ("busy", daemons.busy),
            ("offline", daemons.offline),
        ):
            self._daemons.labels(*key, state).set(number)

    def set_key_created(self, key: Key, created: datetime) -> None:
        self._created.labels(*key).set(created.timestamp())

    def count_rotation(self, key: Key, cause: str) -> None:
        self._rotations.labels(*key, cause).inc()

    def forget(self, key: Key) -> None:
        where = {"namespace": key.namespace, "name": key.name}
        for metric in (self._daemons, self._created, self._rotations):
            metric.remove_by_labels(where)
