"""The real program accepts the command lines and variables of all Deployments that the operator creates."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import PROVISIONER, WORKSPACE_PROXY, CoderControlPlane, CoderProvisioner, CoderWorkspaceProxy
from coder_k8s.controllers.controlplane import deployment as controlplane
from coder_k8s.controllers.provisioner import objects as provisioner
from coder_k8s.controllers.workspaceproxy import objects as workspaceproxy
from coder_k8s.dev.coder_build import AGPL, LATEST, cached
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Manifest, Unstructured
from tests.support import eventually, objects
from tests.support.real_coder import RealPlane, image

METADATA = {"namespace": "coder", "name": "demo", "uid": "u"}
REFERENCE = {"controlPlaneRef": {"name": "demo"}}
PLANE = msgspec.convert({"metadata": METADATA, "spec": {"tls": {"secretNames": ["tls"]}}}, CoderControlPlane)
DAEMONS = msgspec.convert({"metadata": METADATA, "spec": REFERENCE}, CoderProvisioner)
PROXY = msgspec.convert({"metadata": METADATA, "spec": {**REFERENCE, "derpOnly": True}}, CoderWorkspaceProxy)
DEPLOYMENTS = {
    "server": controlplane.deployment(PLANE, controlplane.PodInputs()),
    "provisioner start": provisioner.deployment(DAEMONS, PLANE, "key", "coder", 1),
    "wsproxy server": workspaceproxy.deployment(PROXY, "http://coder", "coder", ""),
}


@pytest.mark.parametrize(
    ("version", "command"),
    [
        pytest.param(LATEST, "server", marks=pytest.mark.coder(LATEST)),
        pytest.param(LATEST, "provisioner start", marks=pytest.mark.coder(LATEST)),
        pytest.param(LATEST, "wsproxy server", marks=pytest.mark.coder(LATEST)),
        pytest.param(AGPL, "server", marks=pytest.mark.coder(AGPL)),
    ],
)
def test_flags_and_variables_are_known(version: str, command: str, tmp_path: Path) -> None:
    [container] = DEPLOYMENTS[command]["spec"]["template"]["spec"]["containers"]
    text = show_help(cached(version), tmp_path, *command.split()) + show_help(cached(version), tmp_path)
    flags = {word.partition("=")[0] for word in container["args"] if word.startswith("--")}
    variables = {entry["name"] for entry in container["env"] if entry["name"].startswith("CODER_")}
    assert flags <= set(re.findall(r"--[a-z-]+", text))
    assert variables <= set(re.findall(r"CODER_[A-Z_]+", text))
    started = [word for word in container["args"] if not word.startswith("--")]
    assert started == ([] if command == "server" else command.split()), "the entry point starts the server"


def show_help(program: Path, home: Path, *command: str) -> str:
    """The help of a command, or that of the program with its global options."""
    words: list[str | Path] = [program, *command, "--help"]
    return subprocess.run(words, env={"HOME": str(home)}, capture_output=True, text=True, check=True).stdout


@pytest.mark.coder
@pytest.mark.timeout(400)
async def test_daemons_and_proxies_start_and_are_rejected_without_a_license(real_coder: RealPlane) -> None:
    async with real_coder.operator():
        await real_coder.make(replicas=1)
        plane = await real_coder.ready()
    # The operator creates no Deployment without a license, so these are created without it.
    reference = {"controlPlaneRef": {"name": real_coder.name}}
    daemons = await objects.create(real_coder.client, PROVISIONER, real_coder.key_of("build"), reference)
    proxy = await objects.create(real_coder.client, WORKSPACE_PROXY, real_coder.key_of("sydney"), reference)
    await real_coder.client.create(SERVICE_ACCOUNT, provisioner.service_account(daemons))
    await real_coder.put_secret(provisioner.secret_name(daemons), key="k" * 43)
    await real_coder.put_secret(workspaceproxy.secret_name(proxy), token=f"{plane.metadata.uid}:{'t' * 64}")
    url = workspaceproxy.primary_url(proxy, plane)
    for manifest in (
        provisioner.deployment(daemons, plane, "key", image(), 1),
        workspaceproxy.deployment(proxy, url, image(), ""),
    ):
        await real_coder.client.create(DEPLOYMENT, manifest)

    exit_code, log = await first_exit(real_coder, provisioner.deployment_name(daemons))
    assert (exit_code, "provisioner daemon key invalid" in log) == (1, True), log
    exit_code, log = await first_exit(real_coder, workspaceproxy.deployment_name(proxy))
    assert (exit_code, "Workspace Proxy is a Premium feature" in log) == (1, True), log


async def first_exit(place: RealPlane, deployment: str) -> tuple[int, str]:
    """Wait until the pod of a Deployment has exited, and return its exit code and log."""

    async def found() -> tuple[int, str] | None:
        for pod in await place.pods():
            if pod.metadata.name.startswith(f"{deployment}-") and (ended := _last_exit(pod)):
                return ended["exitCode"], place.log(pod)
        return None

    result = await eventually(found, place.timeout)
    assert result is not None
    return result


def _last_exit(pod: Unstructured) -> Manifest | None:
    for container in pod.manifest.get("status", {}).get("containerStatuses", []):
        for state in (container["lastState"], container["state"]):
            if "terminated" in state:
                terminated: dict[str, Any] = state["terminated"]
                return terminated
    return None
