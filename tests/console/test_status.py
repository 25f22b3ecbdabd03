"""`status` on a real API server."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.cli import main
from coder_k8s.dev.binaries import program
from coder_k8s.dev.cluster import ClusterAccess
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
from tests.support.api import Api, say
from tests.support.installation import restricted_kubeconfig

BIN = Path(sys.executable).parent
OF_GPU = labels("coder-provisioner", "gpu")


@pytest.fixture
def family(cluster: ClusterAccess, namespace: str, crds: None) -> None:
    """A control plane that is ready, a provisioner that is not and a proxy of which nobody has spoken."""
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
    done = console("status")
    assert done.exit_code == 0
    assert done.output.splitlines() == [
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
    assert console("status", "-n", "default").output == (
        "No Coder resources found in namespace default (use -A for all namespaces).\n"
    )
    assert f"namespace {namespace}" in console("status", "-A").output


def test_for_scripts(console: Console, family: None) -> None:
    content = json.loads(console("status", "prod", "-o", "json").output)
    (node,) = content["items"]
    assert (node["name"], node["ready"], node["phase"]) == ("prod", "True", "Ready")
    (child,) = node["children"]
    assert (child["name"], child["ready"], child["reason"]) == ("gpu", "False", "NotConnected")
    assert [each["name"] for each in child["pods"]] == ["gpu-a"]


def test_the_exit_code_tells_when_it_is_asked_to(console: Console, cluster: ClusterAccess, namespace: str) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("good", with_conditions(READY)))
    put(cluster, CONTROL_PLANE, namespace, plane("bad"))
    assert console("status", "good", "--exit-code").exit_code == 0
    assert console("status", "bad").exit_code == 0
    assert console("status", "bad", "--exit-code").exit_code == 3


def test_nothing_of_that_name(console: Console, namespace: str) -> None:
    done = console("status", "nobody")
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr == f"Error: no control plane or provisioner or proxy named nobody found in namespace {namespace}\n"
    )


def test_somebody_who_may_not_look(console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", None)
    done = console("status", "--kubeconfig", str(config))
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: not allowed: codercontrolplanes.coder.com is forbidden")


def test_somebody_who_may_see_our_kinds_only(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path, family: None, operator_kubeconfig: Path
) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", "coder-k8s-view")
    done = console("status", "--kubeconfig", str(config))
    assert done.exit_code == 0
    assert "provisioner gpu" in done.output
    assert "Pods are not shown" in done.output


async def test_our_kinds_are_not_installed(tmp_path: Path) -> None:
    async with Api(say({}), say(b"404 page not found", 404)) as server:
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


def test_colours_are_for_a_terminal(kubeconfig: Path, family: None) -> None:
    assert "\x1b[32m" in on_terminal(kubeconfig)
    assert "\x1b[" not in on_terminal(kubeconfig, NO_COLOR="1")


def on_terminal(kubeconfig: Path, **environ: str) -> str:
    """What `status` prints to a person."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm", **environ}
    try:
        subprocess.run([BIN / "coder-k8s", "status"], stdout=theirs, env=env, check=True, timeout=60)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def kubectl(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """kubectl as a person has it, with our plugin on the PATH."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run([program("kubectl"), *args], env=env, capture_output=True, text=True, timeout=60)


def test_as_a_plugin_of_kubectl(kubeconfig: Path, family: None) -> None:
    done = kubectl(kubeconfig, "coder", "status", "gpu")
    assert done.returncode == 0, done.stderr
    assert "provisioner gpu  not ready" in done.stdout
    assert kubectl(kubeconfig, "coder", "status", "--help").stdout.startswith("Usage: kubectl coder status ")


def test_kubectl_completes_it(kubeconfig: Path, family: None) -> None:
    assert completions(kubeconfig, "coder", "sta") == ["status"]
    assert completions(kubeconfig, "coder", "rotate", "cprov/") == ["cprov/gpu"]


def completions(kubeconfig: Path, *words: str) -> list[str]:
    *lines, directive = kubectl(kubeconfig, "__complete", *words).stdout.splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in lines]
