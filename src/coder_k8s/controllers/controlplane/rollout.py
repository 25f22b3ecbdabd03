"""Reports the rollout of the Deployment in the condition `Available`."""

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.rollout import Rollout, explain

AVAILABLE = ControlPlaneCondition.AVAILABLE


def judge_suspended(found: Rollout, report: Report) -> None:
    """Add `Available` while an update has stopped the pods, or one of them migrates the database."""
    message = "Coder is not available during an update; see the condition Upgrading"
    report.add(AVAILABLE, found.ready > 0, reasons.UPGRADING, message, satisfied=False)


def judge(found: Rollout, report: Report, missing: tuple[str, ...] = (), failing: str = "") -> None:
    """Add `Available`; it is satisfied when the Deployment has rolled out completely.

    A source that was deleted does not affect running pods: the message names it, the status stays.
    """
    serving = found.ready > 0
    sources = ", ".join(missing)
    if found.stuck:
        report.add(AVAILABLE, serving, reasons.ROLLOUT_STUCK, explain(found, failing), satisfied=False, stalled=True)
    elif not found.complete:
        message = f"Pods cannot start: {sources}" if missing and found.wanted else explain(found, failing)
        report.add(
            AVAILABLE,
            serving,
            reasons.ROLLOUT_IN_PROGRESS if serving else reasons.NO_REPLICAS_READY,
            message,
            satisfied=False,
        )
    elif found.wanted == 0:
        report.add(AVAILABLE, False, reasons.NO_REPLICAS_READY, explain(found), satisfied=True)
    else:
        warning = f"; new pods cannot start: {sources}" if missing else ""
        report.add(AVAILABLE, True, reasons.MINIMUM_REPLICAS_READY, explain(found) + warning)
