"""`pause`, `resume` and `rotate` on a real API server."""

import asyncio
import base64
import sys
from pathlib import Path

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.console.changes import progress
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Manifest
from tests.console.conftest import Console
from tests.console.manifests import READY, get, made, plane, provisioner, put, with_conditions
from tests.support import eventually

ROTATE = "coder.com/rotate-key"
NAMED = "an object named gpu: use ccp/gpu or cprov/gpu"
REQUESTED = "rotation requested (current key: gpu); follow it with `kubectl coder status gpu`"


def annotations(cluster: ClusterAccess, namespace: str, name: str = "gpu") -> dict[str, str]:
    found: dict[str, str] = get(cluster, PROVISIONER, namespace, name)["metadata"].get("annotations", {})
    return found


def set_status(cluster: ClusterAccess, namespace: str, status: Manifest) -> None:
    path = PROVISIONER.path(Key(namespace, "gpu"), "status")
    code, answer = cluster.request("PUT", path, {**get(cluster, PROVISIONER, namespace, "gpu"), "status": status})
    assert code == 200, answer


@pytest.fixture
def gpu(cluster: ClusterAccess, namespace: str, crds: None) -> None:
    status = with_conditions(READY, provisionerKeyName="gpu", provisionerKeyID="one")
    put(cluster, PROVISIONER, namespace, provisioner("gpu", "prod", status))


def test_pause_and_resume(console: Console, cluster: ClusterAccess, namespace: str, gpu: None) -> None:
    title = f"provisioner {namespace}/gpu"
    assert console("resume", "gpu").output == f"{title} is not paused\n"
    assert console("pause", "gpu").output == f"{title} is paused\n"
    assert annotations(cluster, namespace)["coder.com/paused"] == "true"
    before = get(cluster, PROVISIONER, namespace, "gpu")["metadata"]["resourceVersion"]
    assert console("pause", "cprov/gpu").output == f"{title} is already paused\n"
    assert get(cluster, PROVISIONER, namespace, "gpu")["metadata"]["resourceVersion"] == before
    assert "paused" in console("status", "gpu").output
    assert console("resume", "gpu").output == f"{title} is resumed\n"
    assert "coder.com/paused" not in annotations(cluster, namespace)


def test_a_name_of_several_kinds(console: Console, cluster: ClusterAccess, namespace: str, gpu: None) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("gpu"))
    done = console("pause", "gpu")
    assert (done.exit_code, done.stderr) == (
        1,
        f"Error: several kinds have {NAMED}\n",
    )
    assert console("pause", "ccp/gpu").output == f"control plane {namespace}/gpu is paused\n"
    assert "coder.com/paused" not in annotations(cluster, namespace)


def test_unknown_names(console: Console, namespace: str) -> None:
    assert console("rotate", "nobody").stderr == f"Error: no provisioner named nobody found in namespace {namespace}\n"
    assert console("rotate", "ccp/prod").stderr == "Error: this command needs a provisioner, not a control plane\n"


def test_a_pending_rotation_is_not_requested_again(
    console: Console, cluster: ClusterAccess, namespace: str, gpu: None
) -> None:
    secret = made(SECRET, "gpu-provisioner-key")
    del secret["spec"]
    put(cluster, SECRET, namespace, {**secret, "data": {"key": base64.b64encode(b"secret").decode()}})
    title = f"provisioner {namespace}/gpu"
    assert console("rotate", "gpu").output == f"{title}: {REQUESTED}\n"
    requested = annotations(cluster, namespace)[ROTATE]
    assert console("rotate", "gpu").output == f"{title}: rotation already requested at {requested}\n"

    cluster.kubectl("annotate", "secret", "gpu-provisioner-key", f"{ROTATE}={requested}", "-n", namespace)
    assert REQUESTED in console("rotate", "gpu").output
    assert annotations(cluster, namespace)[ROTATE] != requested


def test_a_paused_provisioner_is_not_rotated(
    console: Console, cluster: ClusterAccess, namespace: str, gpu: None
) -> None:
    console("pause", "gpu")
    done = console("rotate", "gpu")
    assert (done.exit_code, done.stderr) == (1, f"Error: provisioner {namespace}/gpu is paused: resume it first\n")
    assert ROTATE not in annotations(cluster, namespace)


async def test_rotate_wait(kubeconfig: Path, cluster: ClusterAccess, namespace: str, gpu: None, tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-u", "-m", "coder_k8s", "rotate", "gpu", "--wait", "--kubeconfig", str(kubeconfig)]
    waiting = Process(command, output)
    waiting.start()
    try:
        await eventually(lambda: "waiting for the new key" in output.read_text(), timeout=30)
        status = with_conditions(READY, provisionerKeyName="gpu-2", provisionerKeyID="two")
        set_status(cluster, namespace, {**status, "retiringKeys": [{"name": "gpu"}]})
        await eventually(lambda: "is deleted when" in output.read_text(), timeout=30)
        set_status(cluster, namespace, status)
        assert await asyncio.to_thread(waiting.child.wait, 30) == 0
    finally:
        waiting.kill()
    assert output.read_text().splitlines() == [
        f"provisioner {namespace}/gpu: {REQUESTED}",
        "key gpu: waiting for the new key",
        "key gpu-2: created; gpu is deleted when no daemon uses it",
        "key gpu-2: in use; all older keys are deleted",
    ]


def test_rotate_timeout(console: Console, gpu: None) -> None:
    done = console("rotate", "gpu", "--wait", "--timeout=100ms")
    assert done.exit_code == 1
    assert done.stderr == "Error: not complete after 0.1 s; the operator continues the rotation\n"


TAKEN = ("ProvisionerKeyReady", "False", "NameTaken", "coderd has a key gpu-2 that is not ours")


@pytest.mark.parametrize(
    ("status", "line", "done"),
    [
        ({}, "key gpu: waiting for the new key", False),
        ({"provisionerKeyID": "one"}, "key gpu: waiting for the new key", False),
        (
            with_conditions(TAKEN, provisionerKeyID="one"),
            "key gpu: waiting for the new key (NameTaken: coderd has a key gpu-2 that is not ours)",
            False,
        ),
        (
            {"provisionerKeyID": "one", "retiringKeys": [{"name": "gpu-2"}]},
            "key gpu: waiting for the new key",
            False,
        ),
        (
            {"provisionerKeyID": "two", "provisionerKeyName": "gpu-2", "retiringKeys": [{"name": "gpu"}]},
            "key gpu-2: created; gpu is deleted when no daemon uses it",
            False,
        ),
        (
            {"provisionerKeyID": "two", "provisionerKeyName": "gpu-2"},
            "key gpu-2: in use; all older keys are deleted",
            True,
        ),
    ],
)
def test_progress(status: Manifest, line: str, done: bool) -> None:
    before = provisioner("gpu", "prod", {"provisionerKeyID": "one", "provisionerKeyName": "gpu"})
    after = provisioner("gpu", "prod", status)
    assert progress(*(msgspec.convert(each, CoderProvisioner) for each in (before, after))) == (line, done)
