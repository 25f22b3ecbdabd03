"""What a control plane's licence allows, told as the condition `EntitlementsKnown` and in the status."""

from collections.abc import Callable
from datetime import datetime, timedelta

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.conditions import ControlPlaneCondition
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import Entitlements, License
from coder_k8s.controllers.report import Report
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.objects import Key

from .license import moment
from .metrics import LicenseMetrics

KNOWN = ControlPlaneCondition.ENTITLEMENTS_KNOWN
INTERVAL = timedelta(minutes=2)
RETRY = 30.0
UNSUPPORTED_RETRY = 600.0
EXTERNAL_PROVISIONERS = "external_provisioner_daemons"
PREMIUM = ("custom_roles", "multiple_organizations")
USABLE = ("entitled", "grace_period")
WARN_DAYS = (3, 14, 30)


def tier(found: Entitlements) -> str:
    if not found.has_license:
        return "none"
    if found.trial:
        return "trial"
    return "premium" if any(entitlement(found, feature) in USABLE for feature in PREMIUM) else "enterprise"


def entitlement(found: Entitlements, feature: str) -> str:
    known = found.features.get(feature)
    return known.entitlement if known else "not_entitled"


def expiry(stored: list[License]) -> datetime | None:
    """When the last of the licences runs out."""
    ends = [moment(each.claims.get("license_expires") or each.claims.get("exp")) for each in stored]
    return max((end for end in ends if end is not None), default=None)


def warning_days(left: timedelta) -> int | None:
    """Which warning is due, the most urgent first; none while there is time."""
    return next((days for days in WARN_DAYS if left <= timedelta(days=days)), None)


class EntitlementWatcher:
    """Asks coderd every two minutes, and at once after a licence was uploaded."""

    def __init__(self, recorder: Recorder, metrics: LicenseMetrics, now: Callable[[], datetime]) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._told: dict[Key, int] = {}

    def forget(self, key: Key) -> None:
        self._told.pop(key, None)
        self._metrics.forget(key)

    async def check(
        self, plane: CoderControlPlane, coderd: Coderd | None, serving: bool, report: Report, *, at_once: bool = False
    ) -> None:
        if coderd is None or not serving:
            report.add(KNOWN, None, "Pending", "waiting for operator access and a pod that is ready", settled=True)
            report.fields |= _unknown(plane)
            return
        last = plane.status.entitlements_last_checked
        wait = last + INTERVAL - self._now() if last else timedelta()
        if wait > timedelta() and not at_once and self._metrics.knows(plane.key):
            report.add(KNOWN, True, "Checked", settled=True)
            report.again(wait.total_seconds())
            return
        try:
            found, stored, build = await coderd.entitlements(), await coderd.licenses(), await coderd.build_info()
        except coderd_errors.CoderdError as trouble:
            _explain(trouble, report)
            return
        self._tell(plane, found, stored, report)
        report.fields["version"] = build.version
        report.add(KNOWN, True, "Checked", settled=True)
        report.again(INTERVAL.total_seconds())

    def _tell(self, plane: CoderControlPlane, found: Entitlements, stored: list[License], report: Report) -> None:
        before = plane.status.external_provisioner_daemons_entitlement
        after = entitlement(found, EXTERNAL_PROVISIONERS)
        ends = expiry(stored) if found.has_license else None
        report.fields |= {
            "license_tier": tier(found),
            "license_expires": ends,
            "external_provisioner_daemons_entitlement": after,
            "entitlements_last_checked": self._now().replace(microsecond=0),
        }
        self._metrics.show(plane.key, tier(found), ends, found)
        if before in USABLE and after not in USABLE:
            self._recorder.warning(
                CONTROL_PLANE, plane, "EntitlementLost", "the licence no longer covers external provisioners"
            )
        if ends is not None:
            self._warn(plane, ends)

    def _warn(self, plane: CoderControlPlane, ends: datetime) -> None:
        """Once for each of the three dates; a new licence starts anew."""
        due = warning_days(ends - self._now())
        if due is None:
            self._told.pop(plane.key, None)
        elif due < self._told.get(plane.key, WARN_DAYS[-1] + 1):
            self._told[plane.key] = due
            day = ends.date().isoformat()
            self._recorder.warning(CONTROL_PLANE, plane, "LicenseExpiring", f"the licence runs out on {day}")


def _unknown(plane: CoderControlPlane) -> dict[str, str]:
    """Before the first answer nothing is known; later the last answer stands, with its time."""
    if plane.status.entitlements_last_checked is not None:
        return {}
    return {"license_tier": "unknown", "external_provisioner_daemons_entitlement": "unknown"}


def _explain(trouble: coderd_errors.CoderdError, report: Report) -> None:
    match trouble:
        case coderd_errors.NotSupported():
            report.add(KNOWN, False, "NotSupported", "this build of coderd knows no entitlements", settled=True)
            report.fields |= {"license_tier": "none", "external_provisioner_daemons_entitlement": "not_entitled"}
            report.again(UNSUPPORTED_RETRY)
        case coderd_errors.Forbidden() | coderd_errors.Unauthorized():
            report.add(KNOWN, False, "Forbidden", str(trouble), settled=True)
            report.again(RETRY)
        case coderd_errors.RateLimited():
            report.add(KNOWN, False, "Error", str(trouble), settled=True)
            report.again(trouble.after)
        case _:
            report.add(KNOWN, False, "Error", str(trouble), settled=True)
            report.again(RETRY)
