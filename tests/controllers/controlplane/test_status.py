"""The status of a control plane, compared with its Deployment at that time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.cluster import ClusterAccess, KubectlFailed
from coder_k8s.kube.events import EVENT
from coder_k8s.kube.kinds import POD, SERVICE
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.history import version_of
from tests.support.kstatus import condition, kstatus, kubectl_waits
from tests.support.metrics import total

from .planes import manifest
from .readiness import check_every_state
from .recorded_plane import RecordedPlane, recorded_plane

WEBHOOK = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    Unstructured,
    namespaced=False,
)
DEADLINE = {
    "type": "Progressing",
    "status": "False",
    "reason": "ProgressDeadlineExceeded",
    "message": 'ReplicaSet "demo-1" has timed out progressing.',
}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RecordedPlane]:
    async with recorded_plane(cluster.kubeconfig, operator_kubeconfig, namespace) as demo:
        yield demo


def brief(plane: Manifest) -> str:
    """Phase, reason of Available, status of Ready, and the result of kstatus."""
    available, ready = condition(plane, "Available"), condition(plane, "Ready")
    return f"{plane['status']['phase']} {available.get('reason')} {ready['status']} {kstatus(plane)}"


async def reports(demo: RecordedPlane, expected: str) -> Manifest:
    """Wait for this status, at the current generation and after the last change of the pods."""

    def matches(plane: Manifest) -> bool:
        observed = plane.get("status", {}).get("observedGeneration") == plane["metadata"]["generation"]
        return observed and version_of(plane) > demo.since and brief(plane) == expected

    return await demo.wait_until(matches)


async def test_life(demo: RecordedPlane) -> None:
    """Create, roll out, change, scale to zero and back, lose a pod."""
    async with demo.running():
        await demo.deploy(replicas=2)
        await reports(demo, "Pending NoReplicasReady False InProgress")
        await demo.pods(0, total=2)
        state = await reports(demo, "Pending NoReplicasReady False InProgress")
        await demo.pods(1, total=2)
        state = await reports(demo, "Ready RolloutInProgress False InProgress")
        assert condition(state, "Available")["status"] == "True"
        await demo.pods(2)
        state = await reports(demo, "Ready MinimumReplicasReady True Current")
        assert (state["status"]["replicas"], state["status"]["readyReplicas"]) == (2, 2)

        await demo.change(image="coder:next")
        await reports(demo, "Ready RolloutInProgress False InProgress")
        await demo.pods(2, total=3, updated=1)
        await reports(demo, "Ready RolloutInProgress False InProgress")
        await demo.pods(2)
        await reports(demo, "Ready MinimumReplicasReady True Current")

        await demo.change(replicas=0)
        await reports(demo, "Ready RolloutInProgress False InProgress")
        await demo.pods(0)
        state = await reports(demo, "Pending NoReplicasReady True Current")
        assert condition(state, "Ready")["reason"] == "ScaledToZero"
        assert condition(state, "Available")["status"] == "False"
        assert not kubectl_waits(state)
        assert "readyReplicas" not in state["status"]

        await demo.change(replicas=1)
        await reports(demo, "Pending NoReplicasReady False InProgress")
        await demo.pods(1)
        await reports(demo, "Ready MinimumReplicasReady True Current")
        await demo.pods(0, total=1)
        await reports(demo, "Pending NoReplicasReady False InProgress")
        await demo.pods(1)
        await reports(demo, "Ready MinimumReplicasReady True Current")
    check_every_state(demo)


async def test_image_is_that_of_the_last_complete_rollout(demo: RecordedPlane) -> None:
    """Provisioners use it, and coderd rejects a daemon that is newer."""
    images: list[str] = []

    async def then(expected: str) -> None:
        images.append((await reports(demo, expected))["status"].get("image", ""))

    async with demo.running():
        await demo.deploy(image="coder:v1", replicas=2)
        await then("Pending NoReplicasReady False InProgress")
        await demo.pods(2, total=3, updated=1)
        await then("Ready RolloutInProgress False InProgress")
        await demo.pods(2)
        await then("Ready MinimumReplicasReady True Current")
        await demo.change(image="coder:v2")
        await then("Ready RolloutInProgress False InProgress")
        await demo.pods(2, total=3, updated=1, conditions=[DEADLINE])
        await then("Ready RolloutStuck False Failed")
        await demo.pods(2)
        await then("Ready MinimumReplicasReady True Current")
        await demo.change(replicas=0, image="coder:v3")
        await then("Ready RolloutInProgress False InProgress")
        await demo.pods(0)
        await then("Pending NoReplicasReady True Current")
    assert images == ["", "", "coder:v1", "coder:v1", "coder:v1", "coder:v2", "coder:v2", "coder:v2"]


async def test_change_without_effect_on_pods_is_reported_at_once(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.deploy()
        await demo.pods(1)
        await reports(demo, "Ready MinimumReplicasReady True Current")
        await demo.change(service={"annotations": {"a": "b"}})
        await reports(demo, "Ready MinimumReplicasReady True Current")
    check_every_state(demo)


async def test_image_that_cannot_be_pulled(demo: RecordedPlane) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off"}
    async with demo.running():
        await demo.deploy(image="coder:typo")
        await make_pod(demo, "demo-1", waiting, "coder:typo")
        cause = 'pod demo-1: ImagePullBackOff: Back-off pulling image "coder:typo"'
        early = await demo.wait_until(lambda plane: cause in condition(plane, "Available").get("message", ""))
        assert condition(early, "Available")["message"] == f"0 of 1 updated pods are ready; {cause}"
        assert condition(early, "Ready")["message"] == f"0 of 1 updated pods are ready; {cause}"
        assert kstatus(early) == "InProgress"
        await demo.pods(0, total=1, conditions=[DEADLINE])
        state = await reports(demo, "Pending RolloutStuck False Failed")
        for name in ("Available", "Stalled", "Ready"):
            assert condition(state, name)["reason"] == "RolloutStuck"
            assert condition(state, name)["message"] == f"0 of 1 updated pods are ready; {cause}"

        await demo.change(image="coder:right")
        await reports(demo, "Pending NoReplicasReady False InProgress")
        await demo.pods(1)
        state = await reports(demo, "Ready MinimumReplicasReady True Current")
        assert condition(state, "Stalled")["status"] == "False"
    check_every_state(demo)


async def test_stuck_rollout_with_old_ready_pods(demo: RecordedPlane) -> None:
    """The old pods keep serving; a pod that is being created does not hide the one that fails."""
    async with demo.running():
        await demo.deploy()
        await demo.pods(1)
        await reports(demo, "Ready MinimumReplicasReady True Current")
        await demo.change(image="coder:typo")
        await demo.rolled(2)
        await make_pod(demo, "demo-1", {"reason": "ContainerCreating"})
        await make_pod(demo, "demo-2", {"reason": "ErrImagePull"}, "coder:typo")
        await demo.pods(1, total=2, updated=1, conditions=[DEADLINE])
        state = await reports(demo, "Ready RolloutStuck False Failed")
        assert condition(state, "Available")["status"] == "True"
        cause = 'pod demo-2: ImagePullBackOff: Back-off pulling image "coder:typo"'
        assert condition(state, "Available")["message"] == f"0 of 1 updated pods are ready; {cause}"
    check_every_state(demo)


async def test_unschedulable_pod_is_reported_at_once_while_old_pods_are_ready(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.deploy(replicas=3)
        await demo.pods(3)
        await reports(demo, "Ready MinimumReplicasReady True Current")
        await demo.change(nodeSelector={"disk": "absent"})
        await demo.rolled(2)
        await demo.pods(3, total=4, updated=1)
        cause = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        await make_pod(demo, "demo-4", {}, conditions=[UNSCHEDULED | {"message": cause}])
        message = f"0 of 3 updated pods are ready; pod demo-4: Unschedulable: {cause[:-1]}"
        state = await demo.wait_until(lambda plane: condition(plane, "Available").get("message") == message)
        assert condition(state, "Available")["status"] == "True"
        assert (condition(state, "Ready")["status"], condition(state, "Ready")["message"]) == ("False", message)
    check_every_state(demo)


async def test_stuck_rollout_without_a_pod_has_the_message_of_the_deployment(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.deploy()
        await demo.pods(0, conditions=[DEADLINE])
        state = await reports(demo, "Pending RolloutStuck False Failed")
        assert condition(state, "Available")["message"] == f"0 of 1 updated pods are ready; {DEADLINE['message'][:-1]}"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="plain"),
        pytest.param({"replicas": 0}, id="no replicas"),
        pytest.param({"envFrom": [{"secretRef": {"name": "absent"}}]}, id="source missing"),
        pytest.param({"operatorAccess": {}}, id="with operator access"),
        pytest.param({"licenseSecretRef": {"name": "absent"}, "operatorAccess": {}}, id="with a license"),
        pytest.param({"nodeSelector": {"a": "no label!"}}, id="Deployment refused"),
    ],
)
async def test_first_status_is_not_ready(demo: RecordedPlane, spec: dict[str, Any]) -> None:
    async with demo.running() as operator:
        async with operator.one_more_reconcile():
            await demo.client.create(CONTROL_PLANE, manifest(demo.namespace, **spec))
        await demo.wait_until(lambda plane: plane.get("status"))
    first = next(state for state in demo.planes.states if state.get("status"))
    assert first["status"]["observedGeneration"] == first["metadata"]["generation"] == 1
    assert condition(first, "Ready")["status"] == "False"
    assert {"Reconciling", "Stalled", "Available"} <= {entry["type"] for entry in first["status"]["conditions"]}
    assert kubectl_waits(first)
    assert kstatus(first) != "Current"


async def test_first_status_is_written_also_if_a_step_fails(demo: RecordedPlane) -> None:
    """Without a status, an object with an error would look complete."""
    name = f"refuses-{demo.namespace}"
    webhook = {
        "name": "refuses.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": demo.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = await demo.client.create(WEBHOOK, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        async with demo.running():
            await demo.deploy()
            state = await demo.wait_until(lambda plane: "refuses.example.com" in condition(plane, "Ready")["message"])
            assert (condition(state, "Ready")["status"], kstatus(state)) == ("False", "InProgress")
            await demo.pods(1)
            await demo.client.delete(WEBHOOK, made)
            await reports(demo, "Ready MinimumReplicasReady True Current")
    finally:
        with suppress(Exception):
            await demo.client.delete(WEBHOOK, made)


async def test_kubectl_wait(demo: RecordedPlane, cluster: ClusterAccess) -> None:
    def wait(timeout: str) -> str:
        object_ = f"codercontrolplane/{demo.key.name}"
        return cluster.kubectl("wait", "--for=condition=Ready", object_, "-n", demo.namespace, f"--timeout={timeout}")

    async with demo.running():
        await demo.deploy()
        with pytest.raises(KubectlFailed, match="timed out"):
            await asyncio.to_thread(wait, "100ms")
        waiting = asyncio.create_task(asyncio.to_thread(wait, "20s"))
        await demo.pods(1)
        assert "condition met" in await waiting
    await demo.change(image="coder:next")  # no operator is running
    with pytest.raises(KubectlFailed, match="timed out"):
        await asyncio.to_thread(wait, "100ms")


async def test_reconcile_without_a_change_sends_nothing(demo: RecordedPlane) -> None:
    def requests() -> int:
        return total(operator.runtime.metrics.requests)

    async with demo.running() as operator:
        await demo.deploy(extraEnv=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "K"}}}])
        await demo.pods(1)
        await reports(demo, "Ready MinimumReplicasReady True Current")
        await eventually(lambda: event_is_written(demo))
        await operator.wait_idle()
        before, states = requests(), len(demo.planes.states)
        async with operator.one_more_reconcile():
            # Not of the Deployment: that would start a new generation.
            poke = {"metadata": {"annotations": {"example.com/poke": "1"}}}
            await demo.client.merge(SERVICE, demo.key, poke)
        assert requests() == before
        assert len(demo.planes.states) == states


async def test_status_is_written_despite_concurrent_edits(demo: RecordedPlane) -> None:
    edits, enough = 0, asyncio.Event()

    async def edit() -> None:
        nonlocal edits
        while not enough.is_set():
            edits += 1
            await demo.client.merge(CONTROL_PLANE, demo.key, {"metadata": {"labels": {"edit": str(edits)}}})

    async with demo.running():
        await demo.deploy()
        editing = asyncio.create_task(edit())
        for number in range(5):
            await demo.change(image=f"coder:{number}")
            await demo.deployments.until("demo", lambda live, n=number: image(live) == f"coder:{n}")  # type: ignore[misc]
            await demo.pods(1)
            await reports(demo, "Ready MinimumReplicasReady True Current")
        enough.set()
        await editing
        await demo.wait_until(lambda plane: plane["metadata"]["labels"] == {"edit": str(edits)})
    assert edits > 20
    check_every_state(demo, at_once=False)


async def test_condition_of_another_writer_stays(demo: RecordedPlane) -> None:
    foreign = {
        "type": "Audited",
        "status": "True",
        "reason": "Looked",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    async with demo.running():
        await demo.deploy()
        conditions = demo.planes.states[-1]["status"]["conditions"]
        await demo.client.merge(CONTROL_PLANE, demo.key, {"status": {"conditions": [foreign, *conditions]}}, "status")
        await demo.pods(1)
        state = await reports(demo, "Ready MinimumReplicasReady True Current")
        assert condition(state, "Audited") == foreign


async def event_is_written(demo: RecordedPlane) -> bool:
    """Events are written in the background; this one is the last."""
    pages = demo.client.list(EVENT, demo.namespace)
    events = [msgspec.json.decode(item) async for page in pages for item in page.items]
    return any(event["reason"] == "Ready" for event in events)


def image(deployment: Manifest) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


async def make_pod(
    demo: RecordedPlane, name: str, waiting: dict[str, str], image: str = "coder", **status: Any
) -> None:
    """A pod of the control plane whose container waits."""
    labels = demo.deployments.states[-1]["spec"]["template"]["metadata"]["labels"]
    pod = {
        "metadata": {"namespace": demo.namespace, "name": name, "labels": labels},
        "spec": {"serviceAccountName": "demo", "containers": [{"name": "coder", "image": "coder"}]},
    }
    made = await demo.client.create(POD, pod)
    container = {"name": "coder", "image": image, "imageID": "", "ready": False, "restartCount": 0}
    if waiting:
        status["containerStatuses"] = [container | {"state": {"waiting": waiting}}]
    await demo.client.merge(POD, made.key, {"status": status}, "status")
