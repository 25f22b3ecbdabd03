"""Reports what the license of a control plane covers, in the condition `EntitlementsKnown` and the status."""

from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import Entitlements, License
from coder_k8s.controllers.answers import AnswerCache
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.explanations import explain
from coder_k8s.controllers.report import Outcome, StatusReport
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.objects import Key

from .license import parse_timestamp
from .metrics import LicenseMetrics
from .outcomes import ENTITLEMENTS_ERRORS, KNOWN, NOT_SUPPORTED_RECHECK
from .tokens import secret_reference

INTERVAL = timedelta(minutes=2)
EXTERNAL_PROVISIONERS = "external_provisioner_daemons"
PREMIUM = ("custom_roles", "multiple_organizations")
USABLE = ("entitled", "grace_period")
WARN_DAYS = (3, 14, 30)
NOTHING = Entitlements(
    {}, has_license=False, trial=False, refreshed_at=datetime.min.replace(tzinfo=UTC), warnings=[], errors=[]
)
"""The entitlements of a build without licenses."""


def tier(found: Entitlements) -> str:
    if not found.has_license:
        return "none"
    if found.trial:
        return "trial"
    return "premium" if any(entitlement(found, feature) in USABLE for feature in PREMIUM) else "enterprise"


def entitlement(found: Entitlements, feature: str) -> str:
    """The entitlement of a feature; `unknown` if a later version of Coder has another value."""
    known = found.features.get(feature)
    if known is None:
        return "not_entitled"
    return known.entitlement if known.entitlement in (*USABLE, "not_entitled") else "unknown"


def describe(found: Entitlements) -> str:
    """The message of the condition."""
    known = entitlement(found, EXTERNAL_PROVISIONERS).replace("_", " ")
    return (
        f"License tier {tier(found)}; external provisioners are {known.replace('grace period', 'in the grace period')}"
    )


def expiry(stored: list[License]) -> datetime | None:
    """When the last of the licenses expires."""
    ends = [parse_timestamp(each.claims.get("license_expires") or each.claims.get("exp")) for each in stored]
    return max((end for end in ends if end is not None), default=None)


def warning_days(left: timedelta) -> int | None:
    """The days before the expiry of the warning that is due, the most urgent first; none if no warning is due."""
    return next((days for days in WARN_DAYS if left <= timedelta(days=days)), None)


def is_warning_due(before: ControlPlaneStatus, ends: datetime, now: datetime) -> bool:
    """Whether one of the three dates has passed since the last check; a new license has its own dates."""
    due = warning_days(ends - now)
    if due is None:
        return False
    last = before.entitlements_last_checked
    previous = warning_days(ends - last) if last is not None and before.license_expires == ends else None
    return previous is None or due < previous


class EntitlementWatcher:
    """Queries coderd every two minutes, and right after a license was uploaded or the image was updated."""

    def __init__(self, recorder: Recorder, metrics: LicenseMetrics, now: Callable[[], datetime]) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._answers = AnswerCache[Outcome](now, steady=NOT_SUPPORTED_RECHECK)

    def forget(self, key: Key) -> None:
        self._answers.forget(key)
        self._metrics.forget(key)

    async def check(
        self, plane: CoderControlPlane, coderd: Coderd | None, serving: bool, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        if coderd is None or not serving:
            report.add(KNOWN, None, reasons.PENDING, "Waiting for operator access and a ready pod", satisfied=True)
            if plane.status.entitlements_last_checked is None:  # otherwise the last answer stays, with its time
                report.status.license_tier = report.status.external_provisioner_daemons_entitlement = "unknown"
            return
        about = (plane.metadata.uid, report.status.license_last_applied, report.status.image)
        answer = self._answers.get(plane.key, about)
        if answer is None:
            status = draft(plane.status)
            answer = await self._query(plane, coderd, about, status, report.status.image)
            report.update(status)
        report.add_outcome(answer._replace(satisfied=True))
        report.requeue_after(self._answers.left(plane.key))

    async def _query(
        self, plane: CoderControlPlane, coderd: Coderd, about: Hashable, status: ControlPlaneStatus, image: str
    ) -> Outcome:
        """Query coderd, and assign to `status` what follows from the answers."""
        try:
            status.version = (await coderd.build_info()).version
            found, stored = await coderd.entitlements(), await _licenses(coderd)
        except coderd_errors.CoderdError as error:
            names = {"secret": secret_reference(plane).name, "image": image or plane.spec.image}
            outcome, recheck, retry_after = explain(error, ENTITLEMENTS_ERRORS, **names)
            if outcome.reason == reasons.NOT_SUPPORTED:
                self._report(plane, NOTHING, [], status)
            return self._answers.fail(plane.key, about, outcome, recheck, retry_after)
        self._report(plane, found, stored, status)
        checked = Outcome(KNOWN, True, reasons.CHECKED, describe(found))
        return self._answers.keep(plane.key, about, checked, INTERVAL.total_seconds())

    def _report(
        self, plane: CoderControlPlane, found: Entitlements, stored: list[License], status: ControlPlaneStatus
    ) -> None:
        """Update metrics, events and fields. The time of the check changes with a value, or after the interval."""
        before, now = plane.status, self._now()
        ends = expiry(stored) if found.has_license else None
        provisioners = entitlement(found, EXTERNAL_PROVISIONERS)
        status.license_tier, status.license_expires = tier(found), ends
        status.external_provisioner_daemons_entitlement = provisioners
        self._metrics.set(plane.key, tier(found), ends, found)
        if before.external_provisioner_daemons_entitlement in USABLE and provisioners not in USABLE:
            message = "The license no longer covers external provisioners"
            self._recorder.record(CONTROL_PLANE, plane, events.ENTITLEMENT_LOST, message)
        known = (before.license_tier, before.license_expires, before.external_provisioner_daemons_entitlement)
        new = known != (tier(found), ends, provisioners)
        if ends is not None and is_warning_due(before, ends, now):
            new = True  # whether the next warning is due depends on the time of this check
            message = f"The license expires on {ends.date().isoformat()}"
            self._recorder.record(CONTROL_PLANE, plane, events.LICENSE_EXPIRING, message)
        last = before.entitlements_last_checked
        if new or last is None or now - last >= INTERVAL:
            status.entitlements_last_checked = now.replace(microsecond=0)


async def _licenses(coderd: Coderd) -> list[License]:
    """The licenses, for their expiry; empty if the token may not read them, although it may read entitlements."""
    try:
        return await coderd.licenses()
    except coderd_errors.Forbidden:
        return []
