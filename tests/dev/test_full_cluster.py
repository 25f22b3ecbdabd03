"""The cluster with a simulated node: pods become Ready, roll out and are deleted."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.processes import ProcessFailed, poll

pytestmark = pytest.mark.slow


@pytest.fixture
def inside(full_cluster: FullCluster) -> Iterator[str]:
    """A namespace of the full cluster."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    full_cluster.kubectl("create", "namespace", name)
    yield name
    full_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def read(cluster: FullCluster, namespace: str, what: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(cluster.kubectl("get", what, "-n", namespace, "-o", "json"))["items"]
    return items


def test_pods_of_a_deployment_become_ready_roll_out_and_are_deleted(full_cluster: FullCluster, inside: str) -> None:
    def rolled_out() -> list[dict[str, Any]]:
        full_cluster.kubectl("rollout", "status", "deployment/web", "-n", inside, "--timeout=20s")
        return [pod for pod in read(full_cluster, inside, "pods") if "deletionTimestamp" not in pod["metadata"]]

    full_cluster.kubectl("create", "deployment", "web", "--image=one", "--replicas=2", "-n", inside)
    first = rolled_out()
    assert [pod["status"]["phase"] for pod in first] == ["Running", "Running"]
    assert len({pod["status"]["podIP"] for pod in first}) == 2

    full_cluster.kubectl("set", "image", "deployment/web", "*=two", "-n", inside)
    second = rolled_out()
    assert [pod["status"]["containerStatuses"][0]["image"] for pod in second] == ["two", "two"]
    assert not {pod["metadata"]["uid"] for pod in first} & {pod["metadata"]["uid"] for pod in second}

    full_cluster.kubectl("delete", "deployment", "web", "-n", inside)
    assert poll(lambda: not read(full_cluster, inside, "pods,replicasets"), timeout=20)


def test_a_namespace_is_deleted(full_cluster: FullCluster, inside: str) -> None:
    assert poll(lambda: bool(read(full_cluster, inside, "serviceaccounts")), timeout=10)
    full_cluster.kubectl("delete", "namespace", inside, "--timeout=20s")
    assert full_cluster.request("GET", f"/api/v1/namespaces/{inside}")[0] == 404


def test_a_component_that_exits_fails_the_start_and_no_process_is_left(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = scratch / "assets" / "kwok"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such stage; exit 4\n")
    broken.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(broken.parent))
    cluster = FullCluster(scratch / "cluster")
    with pytest.raises(ProcessFailed, match=r"(?s)kwok exited with 4; .*no such stage"):
        cluster.start()
    assert not any(component.running for component in cluster.components)
