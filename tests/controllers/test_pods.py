"""The cause of pods that do not become ready."""

from typing import Any

import msgspec
import pytest

from coder_k8s.controllers.pods import failing
from coder_k8s.kube.objects import Unstructured

CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
PULLING = {
    "image": "coder:typo",
    "state": {"waiting": {"reason": "ErrImagePull", "message": "read udp 10.0.0.5:412"}},
}
BACKING_OFF = {"image": "coder:typo", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}
CANNOT_PULL = 'ImagePullBackOff: Back-off pulling image "coder:typo"'
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def pod(name: str, *containers: dict[str, Any], going: bool = False, **status: Any) -> Unstructured:
    metadata = {"name": name} | ({"deletionTimestamp": "2026-03-01T12:00:00Z"} if going else {})
    return Unstructured.decode(
        msgspec.json.encode({"metadata": metadata, "status": {"containerStatuses": list(containers), **status}})
    )


def crashed(state: str, *, message: str = "", ready: bool = False, code: int = 1) -> dict[str, Any]:
    states = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}, "running": {}}
    last = {"exitCode": code, "reason": "Error", "message": message}
    return {"ready": ready, "state": {state: states[state]}, "lastState": {"terminated": last}}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], "", id="none"),
        pytest.param([Unstructured.decode(b'{"metadata": {"name": "a"}}')], "", id="no status"),
        pytest.param([pod("a", {"ready": True, "state": {"running": {}}})], "", id="ready"),
        pytest.param([pod("a", CREATING)], "", id="just created"),
        pytest.param([pod("a", PULLING)], f"pod a: {CANNOT_PULL}", id="no image"),
        pytest.param([pod("a", BACKING_OFF)], f"pod a: {CANNOT_PULL}", id="no image, and the kubelet waits"),
        pytest.param([pod("b", PULLING), pod("a", CREATING)], f"pod b: {CANNOT_PULL}", id="one of two"),
        pytest.param(
            [pod("b", PULLING), pod("a", crashed("waiting"))], "pod a: CrashLoopBackOff: exit code 1: Error", id="both"
        ),
        pytest.param(
            [pod("a", crashed("waiting", message="no database\n"))],
            "pod a: CrashLoopBackOff: exit code 1: no database",
            id="with a message",
        ),
        pytest.param(
            [pod("a", crashed("waiting", message="2026-01-02T03:04:05Z no database\n"))],
            "pod a: CrashLoopBackOff: exit code 1: no database",
            id="without the time of the message",
        ),
        pytest.param([pod("a", crashed("running"))], "pod a: CrashLoopBackOff: exit code 1: Error", id="runs again"),
        pytest.param([pod("a", crashed("running", ready=True))], "", id="recovered"),
        pytest.param([pod("a", PULLING, going=True)], "", id="on its way out"),
        pytest.param([pod("a", conditions=[UNSCHEDULED])], "pod a: Unschedulable: 0/3 nodes", id="no node"),
        pytest.param([pod("a", conditions=[UNSCHEDULED | {"status": "True"}])], "", id="has a node"),
        pytest.param([pod("a", initContainerStatuses=[PULLING])], f"pod a: {CANNOT_PULL}", id="init"),
    ],
)
def test_first_cause(pods: list[Unstructured], expected: str) -> None:
    assert failing(pods) == expected
