"""How far a Deployment is."""

from typing import Any, NamedTuple

from coder_k8s.kube.objects import Child


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
