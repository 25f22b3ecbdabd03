"""Checks that the license of a control plane covers external provisioners."""

from collections.abc import Callable
from datetime import datetime

from coder_k8s.api import CoderControlPlane, CoderProvisioner, ControlPlaneCondition, reasons
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.answers import STEADY
from coder_k8s.controllers.queries import INTERVAL, CoderdQueries
from coder_k8s.controllers.report import Report
from coder_k8s.kube.conditions import find

from .outcomes import ENTITLED, ENTITLEMENT_ERRORS, NOT_ENTITLED, explain_error

FEATURE = "external_provisioner_daemons"
USABLE = ("entitled", "grace_period")


class EntitlementGate:
    """Decides whether provisioners of a control plane may be set up."""

    def __init__(self, now: Callable[[], datetime], queries: CoderdQueries) -> None:
        self._now = now
        self._queries = queries

    async def passes(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, coderd: Coderd, report: Report
    ) -> bool:
        """Whether the license covers them, reported as a condition."""
        try:
            known, recheck = await self._entitlement(plane, coderd)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.CoderdError as error:
            explanation = explain_error(provisioner, error, ENTITLEMENT_ERRORS)
            report.add_outcome(explanation.outcome)
            report.requeue_after(explanation.seconds)
            return False
        if known in USABLE:
            ending = ", but is in its grace period; renew it" if known == "grace_period" else ""
            report.add(ENTITLED, True, reasons.ENTITLED, f"The license covers external provisioners{ending}")
            return True
        message = NOT_ENTITLED.format(plane=plane.metadata.name)
        report.add(ENTITLED, False, reasons.NOT_ENTITLED, message, stalled=True)
        report.requeue_after(recheck)
        return False

    async def _entitlement(self, plane: CoderControlPlane, coderd: Coderd) -> tuple[str, float]:
        """The entitlement, and in how many seconds to check it again.

        The status of the control plane decides if it is younger than two minutes. If not, coderd does, and also for a
        build without licenses, whose status is that of a server without a license.
        """
        known = plane.status.external_provisioner_daemons_entitlement
        checked = plane.status.entitlements_last_checked
        fresh = checked is not None and self._now() - checked < INTERVAL and known not in ("", "unknown")
        if fresh and not _has_no_licenses(plane):
            return known, STEADY
        feature = (await self._queries.entitlements(coderd)).features.get(FEATURE)
        return feature.entitlement if feature else "not_entitled", self._queries.entitlements_left(coderd)


def _has_no_licenses(plane: CoderControlPlane) -> bool:
    """Whether the control plane runs a build of Coder without licenses."""
    condition = find(plane.status.conditions, ControlPlaneCondition.ENTITLEMENTS_KNOWN)
    return condition is not None and condition.reason == reasons.NOT_SUPPORTED
