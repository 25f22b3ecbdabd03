"""Compares the status of a control plane with its Deployment as the API server stored it at that time."""

from coder_k8s.kube.objects import Manifest
from tests.support.history import version_of
from tests.support.kstatus import kstatus, kubectl_waits

from .recorded_plane import NAME, RecordedPlane


def check_every_state(demo: RecordedPlane, *, at_once: bool = True) -> None:
    """Check every recorded state: it was Ready only while the rollout was complete, and all tools agreed.

    `at_once` also requires that every new status reports a complete rollout, which needs an operator that has time to
    report one change before the next one.
    """
    previous: Manifest = {}
    for plane in demo.planes.of(NAME):
        current = kstatus(plane) == "Current" and "status" in plane
        assert kubectl_waits(plane) is not current, plane
        finished = serves(plane, demo.deployments.at(NAME, version_of(plane)))
        if current:
            assert finished, plane
        elif at_once and plane.get("status") != previous.get("status"):
            assert not finished, plane
        previous = plane


def serves(plane: Manifest, deployment: Manifest | None) -> bool:
    """Whether a Deployment has rolled out completely the spec of a control plane."""
    if deployment is None:
        return False
    spec, status = deployment["spec"], deployment.get("status", {})
    wanted = plane["spec"]["replicas"]
    [container] = spec["template"]["spec"]["containers"]
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    return (
        spec["replicas"] == wanted
        and container["image"] == plane["spec"]["image"]
        and status.get("observedGeneration") == deployment["metadata"]["generation"]
        and counts == [wanted] * 4
    )
