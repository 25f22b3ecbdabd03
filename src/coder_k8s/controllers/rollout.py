"""How far a Deployment is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from coder_k8s.kube.objects import Child

from .labels import selector
from .report import Report


class Rollout(NamedTuple):
    """What a Deployment says about its pods."""

    wanted: int
    replicas: int
    ready: int
    complete: bool
    stuck: str
    """The Deployment's own words when it gave up waiting; empty otherwise."""
    image: str
    """Image of the first container of the pod template."""

    @property
    def running_image(self) -> str:
        """The image that every pod runs; empty while there are none, or pods of an older template."""
        return self.image if self.complete and self.wanted else ""


NOTHING = Rollout(wanted=0, replicas=0, ready=0, complete=False, stuck="", image="")


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
        image=manifest["spec"]["template"]["spec"]["containers"][0]["image"],
    )


def tell_pods(found: Rollout, condition: str, pods: Mapping[str, str], report: Report) -> None:
    """Add the condition of a Deployment, which settles when it has rolled out, and what the status says of its pods."""
    serving = found.ready > 0
    reason = "MinimumReplicasReady" if serving else "NoReplicasReady"
    message = found.stuck or f"{found.ready} of {found.wanted} pods are ready"
    nothing_wanted = found.complete and found.wanted == 0
    report.add(condition, serving, reason, message, settled=found.complete, moving=not nothing_wanted)
    report.fields |= {
        "replicas": found.replicas,
        "ready_replicas": found.ready,
        "phase": "Ready" if serving else "Pending",
        "selector": selector(pods),
    }
