"""Whether a control plane tells the truth, judged from outside: by what the API server held at that moment."""

from coder_k8s.kube.objects import Manifest
from tests.support.history import version_of
from tests.support.kstatus import kstatus, kubectl_waits

from .recorded_plane import NAME, RecordedPlane


def check_every_state(demo: RecordedPlane, *, at_once: bool = True) -> None:
    """Every state that was ever to be seen: it looked finished only while it was, and every tool agreed.

    `at_once` also asks that every status says so of what is finished: true where the operator is given the time to
    tell of one event before the next one happens.
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
    """Whether a Deployment has rolled out completely what the spec of a control plane asks for."""
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
