"""Metrics of the license of a control plane."""

from datetime import datetime

from coder_k8s.coderd.types import Entitlements
from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Gauge, Registry

MAX_FEATURES = 200
ENTITLEMENTS = {"not_entitled": 0, "grace_period": 1, "entitled": 2}


class LicenseMetrics:
    """Gauges by control plane, removed with it."""

    def __init__(self, registry: Registry) -> None:
        self._expiry = Series(
            Gauge, registry, "coder_k8s_license_expiry_timestamp_seconds", "When the license expires."
        )
        self._tier = Series(Gauge, registry, "coder_k8s_license_tier", "1 for the current license tier.", "tier")
        self._entitlement = Series(
            Gauge,
            registry,
            "coder_k8s_license_entitlement",
            "Entitlement by feature: 0 not entitled, 1 in the grace period, 2 entitled.",
            "feature",
        )

    def set(self, key: Key, tier: str, expires: datetime | None, found: Entitlements) -> None:
        self.forget(key)
        if expires is not None:
            self._expiry.of(key).set(expires.timestamp())
        self._tier.of(key, tier).set(1)
        for name, feature in sorted(found.features.items())[:MAX_FEATURES]:
            self._entitlement.of(key, name).set(ENTITLEMENTS.get(feature.entitlement, 0))

    def forget(self, key: Key) -> None:
        for gauge in (self._expiry, self._tier, self._entitlement):
            gauge.forget(key)
