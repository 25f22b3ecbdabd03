"""`status` on a real API server."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.cli import main
from coder_k8s.dev.binaries import program
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process
from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from tests.console.conftest import Console
from tests.console.manifests import (
    READY,
    RUNNING,
    labels,
    made,
    plane,
    pod,
    provisioner,
    proxy,
    put,
    selector,
    with_conditions,
)
from tests.kube import kubeconfigs
from tests.support import eventually
from tests.support.api import Api, reply
from tests.support.installation import restricted_kubeconfig

BIN = Path(sys.executable).parent
OF_GPU = labels("coder-provisioner", "gpu")


@pytest.fixture
def family(cluster: ClusterAccess, namespace: str, crds: None) -> None:
    """A control plane that is ready, a provisioner that is not, and a proxy that is not reconciled."""
    put(
        cluster,
        CONTROL_PLANE,
        namespace,
        plane("prod", with_conditions(READY, phase="Ready", version="v2.30.0", readyReplicas=1)),
    )
    waiting = ("Ready", "False", "NotConnected", "coderd sees 0 of 1 daemons")
    put(
        cluster, PROVISIONER, namespace, provisioner("gpu", "prod", with_conditions(waiting, selector=selector(OF_GPU)))
    )
    put(cluster, WORKSPACE_PROXY, namespace, proxy("eu", {"controlPlaneRef": {"name": "gone"}}))
    put(cluster, SERVICE_ACCOUNT, namespace, made(SERVICE_ACCOUNT, "default"))
    put(cluster, POD, namespace, pod("gpu-a", RUNNING, OF_GPU))


def test_the_namespace_of_the_context(console: Console, namespace: str, family: None) -> None:
    done = console("status", "--operator-namespace", namespace)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"operator {namespace}  not found  Not found in namespace {namespace} (use --operator-namespace)",
        f"namespace {namespace}",
        "├─ control plane gone  missing",
        "│  │   NotFound: Does not exist, but is referenced by the objects below",
        "│  └─ proxy eu  not ready  0/1 pods",
        "│         NoStatus: Not reconciled yet. Is the operator running?",
        "└─ control plane prod  Ready  1/1 pods, v2.30.0",
        "   └─ provisioner gpu  not ready  0/1 pods",
        "      │   NotConnected: coderd sees 0 of 1 daemons",
        "      └─ daemon gpu-a  ready",
    ]


def test_another_namespace_and_all(console: Console, namespace: str, family: None) -> None:
    assert console("status", "-n", "default").output.splitlines()[1:] == [
        "No Coder resources found in namespace default (use -A for all namespaces)."
    ]
    assert f"namespace {namespace}" in console("status", "-A").output


def test_json_and_yaml(console: Console, family: None) -> None:
    content = json.loads(console("status", "prod", "-o", "json").output)
    assert yaml.safe_load(console("status", "prod", "-o", "yaml").output)["items"] == content["items"]
    (node,) = content["items"]
    assert (node["name"], node["ready"], node["phase"]) == ("prod", "True", "Ready")
    (child,) = node["children"]
    assert (child["name"], child["ready"], child["reason"]) == ("gpu", "False", "NotConnected")
    assert [each["name"] for each in child["pods"]] == ["gpu-a"]


def test_the_exit_code(console: Console, cluster: ClusterAccess, namespace: str) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("good", with_conditions(READY)))
    put(cluster, CONTROL_PLANE, namespace, plane("bad"))
    assert console("status", "good", "--exit-code").exit_code == 0
    assert console("status", "bad").exit_code == 0
    assert console("status", "bad", "--exit-code").exit_code == 3


async def test_watch(kubeconfig: Path, cluster: ClusterAccess, namespace: str, crds: None, tmp_path: Path) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("prod"))
    output = tmp_path / "output"
    command = [*(sys.executable, "-u", "-m", "coder_k8s"), "status", "--watch", "-o", "yaml"]
    watching = Process([*command, "--kubeconfig", str(kubeconfig), "--operator-namespace", namespace], output)
    watching.start()

    def documents() -> list[list[tuple[str, str]]]:
        """Return name and readiness of the objects in each document."""
        loaded = [each for each in yaml.safe_load_all(output.read_text()) if each]
        return [[(item["name"], item["ready"]) for item in each["items"]] for each in loaded]

    try:
        await eventually(lambda: documents() == [[("prod", "Unknown")]], 60)
        put(cluster, CONTROL_PLANE, namespace, plane("test", with_conditions(READY)))
        await eventually(lambda: documents()[-1] == [("prod", "Unknown"), ("test", "True")], 60)
        watching.child.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(watching.child.wait, 30) == 0
    finally:
        watching.kill()
    assert "Traceback" not in output.read_text()


def test_watch_has_no_exit_code() -> None:
    done = CliRunner().invoke(main, ["status", "--watch", "--exit-code"])
    assert done.exit_code == 2
    assert "mutually exclusive" in done.stderr


def test_no_object_has_this_name(console: Console, namespace: str) -> None:
    done = console("status", "nobody")
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"Error: no control plane or provisioner or proxy or template named nobody found in namespace {namespace}\n"
    )


def test_a_user_without_permissions(console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", None)
    done = console("status", "--kubeconfig", str(config))
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: not allowed: codercontrolplanes.coder.com is forbidden")


def test_a_user_who_cannot_list_pods(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path, family: None, operator_kubeconfig: Path
) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", "coder-k8s-view")
    done = console("status", "--kubeconfig", str(config))
    assert done.exit_code == 0
    assert "provisioner gpu" in done.output
    assert "Pods are not shown" in done.output


async def test_the_crds_are_not_installed(tmp_path: Path) -> None:
    async with Api(reply({}), reply(b"404 page not found", 404)) as server:
        config = kubeconfigs.write(tmp_path / "config", {"server": f"http://127.0.0.1:{server.port}"})
        command = [sys.executable, "-m", "coder_k8s", "status", "--kubeconfig", str(config)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"Error: CoderControlPlane is not installed in the cluster at http://127.0.0.1:{server.port}"
    )


def test_no_cluster() -> None:
    done = CliRunner(env={"KUBECONFIG": "/nonexistent"}).invoke(main, ["status"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: KUBECONFIG: there is no file /nonexistent\n"


def test_colors_on_a_terminal(kubeconfig: Path, family: None) -> None:
    assert "\x1b[32m" in on_terminal(kubeconfig)
    assert "\x1b[" not in on_terminal(kubeconfig, NO_COLOR="1")


def on_terminal(kubeconfig: Path, **environ: str) -> str:
    """Return what `status` prints to a terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm", **environ}
    try:
        subprocess.run([BIN / "coder-k8s", "status"], stdout=theirs, env=env, check=True, timeout=60)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def kubectl(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl with the plugin on the PATH."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run([program("kubectl"), *args], env=env, capture_output=True, text=True, timeout=60)


def test_the_kubectl_plugin(kubeconfig: Path, family: None) -> None:
    done = kubectl(kubeconfig, "coder", "status", "gpu")
    assert done.returncode == 0, done.stderr
    assert "provisioner gpu  not ready" in done.stdout
    assert kubectl(kubeconfig, "coder", "status", "--help").stdout.startswith("Usage: kubectl coder status ")


def test_kubectl_completion(kubeconfig: Path, family: None) -> None:
    assert completions(kubeconfig, "coder", "sta") == ["status"]
    assert completions(kubeconfig, "coder", "rotate", "cprov/") == ["cprov/gpu"]


def completions(kubeconfig: Path, *words: str) -> list[str]:
    *lines, directive = kubectl(kubeconfig, "__complete", *words).stdout.splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in lines]
