"""How far the Deployment is, told as the condition `Available`."""

from typing import Any, NamedTuple

from coder_k8s.api.conditions import ControlPlaneCondition
from coder_k8s.controllers.report import Report
from coder_k8s.kube.objects import Child

AVAILABLE = ControlPlaneCondition.AVAILABLE


class Rollout(NamedTuple):
    """What a Deployment says about its pods."""

    wanted: int
    replicas: int
    ready: int
    complete: bool
    stuck: str
    """The Deployment's own words when it gave up waiting; empty otherwise."""


NOTHING = Rollout(wanted=0, replicas=0, ready=0, complete=False, stuck="")


def rollout(deployment: Child) -> Rollout:
    manifest = deployment.manifest
    status: dict[str, Any] = manifest.get("status") or {}
    wanted = manifest["spec"].get("replicas", 1)
    observed = status.get("observedGeneration", 0) >= deployment.metadata.generation
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    stuck = next(
        (
            condition.get("message", "")
            for condition in status.get("conditions", [])
            if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded"
        ),
        "",
    )
    return Rollout(
        wanted=wanted,
        replicas=counts[0],
        ready=counts[2],
        complete=observed and all(count == wanted for count in counts),
        stuck=stuck if observed else "",
    )


def judge(found: Rollout, report: Report, missing: tuple[str, ...] = (), failing: str = "") -> None:
    """Add `Available`; it settles only when the Deployment has rolled out completely and serves.

    A source that vanished under running pods takes nothing from them, so it is told and does not count.
    """
    serving = found.ready > 0
    progress = f"{found.ready} of {found.wanted} pods are ready"
    sources = ", ".join(missing)
    if found.stuck:
        report.add(AVAILABLE, serving, "RolloutStuck", failing or found.stuck, settled=False, stalled=True)
    elif not found.complete:
        message = f"pods wait for {sources}" if missing else progress
        report.add(AVAILABLE, serving, "RolloutInProgress" if serving else "NoReplicasReady", message, settled=False)
    elif found.wanted == 0:
        report.add(AVAILABLE, False, "NoReplicasReady", "scaled to zero", moving=False)
    else:
        warning = f"; a new one would wait for {sources}" if missing else ""
        report.add(AVAILABLE, True, "MinimumReplicasReady", progress + warning)
