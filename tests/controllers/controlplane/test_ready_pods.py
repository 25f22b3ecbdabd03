"""A control plane on a cluster in which pods start and stop."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, POD, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.kstatus import condition, kstatus
from tests.support.objects import delete_namespace

from .readiness import check_every_state
from .recorded_plane import CHECKSUM, RecordedPlane, recorded_plane

REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", Unstructured)
KINDS = (DEPLOYMENT, REPLICA_SET, POD, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS)


@pytest.fixture
async def demo(full_cluster: FullCluster, full_cluster_operator: Path) -> AsyncIterator[RecordedPlane]:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    full_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    async with recorded_plane(full_cluster.kubeconfig, full_cluster_operator, namespace) as demo:
        yield demo
        await delete_namespace(demo.client, namespace)


async def find(demo: RecordedPlane, kind: Kind[Unstructured]) -> list[Manifest]:
    """The objects of a kind that are not being deleted, without the default ServiceAccount."""
    pages = demo.client.list(kind, demo.namespace)
    found = [msgspec.json.decode(item) async for page in pages for item in page.items]
    return [
        item for item in found if item["metadata"]["name"] != "default" and "deletionTimestamp" not in item["metadata"]
    ]


async def becomes_ready(demo: RecordedPlane) -> Manifest:
    return await demo.wait_until(lambda plane: "status" in plane and kstatus(plane) == "Current")


async def test_changed_secret_rolls_pods_and_ready_follows(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "database", CODER_PG_CONNECTION_URL="postgres://one")
    async with demo.running():
        await demo.deploy(replicas=2, envFrom=[{"secretRef": {"name": "database"}}])
        ready = await becomes_ready(demo)
        assert (ready["status"]["phase"], ready["status"]["readyReplicas"]) == ("Ready", 2)
        first = await find(demo, POD)
        assert [pod["status"]["phase"] for pod in first] == ["Running", "Running"]

        seen = len(demo.planes.states)
        await demo.put(SECRET, "database", CODER_PG_CONNECTION_URL="postgres://two")
        annotation = await demo.rolled(2)
        await demo.wait_until(lambda plane: kstatus(plane) == "InProgress")
        ready = await becomes_ready(demo)
        second = await find(demo, POD)
    assert {pod["metadata"]["annotations"][CHECKSUM] for pod in second} == {annotation}
    assert not {pod["metadata"]["uid"] for pod in first} & {pod["metadata"]["uid"] for pod in second}
    assert ready["status"]["readyReplicas"] == 2
    statuses = [condition(state, "Ready")["status"] for state in demo.planes.states[seen:]]
    assert "".join(status[0] for status in dict.fromkeys(statuses)) == "FT"
    check_every_state(demo, at_once=False)


async def test_scaled_to_zero_and_back(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.deploy()
        await becomes_ready(demo)
        await demo.change(replicas=0)
        state = await demo.wait_until(lambda plane: condition(plane, "Ready")["reason"] == "ScaledToZero")
        assert (condition(state, "Ready")["status"], kstatus(state)) == ("True", "Current")
        assert await find(demo, POD) == []
        await demo.change(replicas=2)
        assert (await becomes_ready(demo))["status"]["readyReplicas"] == 2
        assert len(await find(demo, POD)) == 2
    check_every_state(demo, at_once=False)


async def test_deletion_deletes_all_children(demo: RecordedPlane) -> None:
    async def left() -> dict[str, int]:
        return {kind.name: len(await find(demo, kind)) for kind in KINDS}

    async def nothing_left() -> bool:
        return not any((await left()).values())

    async with demo.running():
        await demo.deploy(expose={"ingress": {"host": "coder.example.com"}})
        await becomes_ready(demo)
        assert set((await left()).values()) == {1}
        await demo.delete(CONTROL_PLANE, "demo")
        await eventually(nothing_left, timeout=30)
