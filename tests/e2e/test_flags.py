"""Command-line flags take effect in the controllers."""

import base64
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.dev.processes import Process, free_port
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE_BINDING, SECRET
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.e2e import planes
from tests.e2e.operator_process import Start
from tests.support import eventually, objects

TOKEN = "0123456789-abcdefghijklmnopqrstuv"
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
ME = "GET /api/v2/users/me"


class Coderd:
    """The coderd simulator as a process."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        log = folder / "coderd.log"
        command = [sys.executable, "-m", "coder_k8s.dev.coderd_server", "--port", str(port), "--token", TOKEN]
        self.process = Process(command, log, ready=lambda: self.address in log.read_text())

    def control(self, action: str, **arguments: Any) -> Any:
        """Send a request to the simulator's control API."""
        request = urllib.request.Request(f"http://{self.address}/_control/{action}", json.dumps(arguments).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - a local server
            return json.load(answer)

    def route(self, *keys: Key) -> str:
        """The flag that makes an operator outside the cluster connect to it for these control planes."""
        return "--coderd-connect-to=" + ",".join(
            f"{key.name}.{key.namespace}.svc.cluster.local:80={self.address}" for key in keys
        )


@pytest.fixture
def coderd(tmp_path: Path) -> Iterator[Coderd]:
    coderd = Coderd(tmp_path)
    coderd.process.start()
    coderd.process.wait_ready()
    yield coderd
    coderd.process.kill()


@pytest.fixture
async def plane(admin: Client, namespace: str) -> Key:
    """A control plane whose operator token comes from a Secret."""
    metadata = {"namespace": namespace, "name": "token"}
    await admin.create(SECRET, {"metadata": metadata, "data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
    key = Key(namespace, "coder")
    await planes.make(admin, key, operatorAccess={"tokenSecretRef": {"name": "token"}})
    return key


async def test_connect_to_replaces_the_address(start: Start, admin: Client, coderd: Coderd, plane: Key) -> None:
    operator = start(coderd.route(plane), "--log-level=debug")
    await planes.serve(admin, plane)
    assert (await planes.condition(admin, plane, "OperatorAccessReady", "TokenReady")).status == "True"
    assert (await planes.condition(admin, plane, "Ready", "AllReady")).status == "True"
    assert coderd.control("requests")[ME] == 1
    assert TOKEN not in operator.log.read_text()


async def test_sigterm_cancels_a_reconcile_that_waits_for_coderd(
    start: Start, admin: Client, coderd: Coderd, plane: Key
) -> None:
    coderd.control("set", latency=60)
    operator = start(coderd.route(plane), "--shutdown-grace=1s")
    await planes.serve(admin, plane)
    await eventually(lambda: coderd.control("requests").get(ME))
    os.kill(operator.pid, signal.SIGTERM)
    assert await operator.exit_code(within=4) == 0
    assert operator.log_entry("controller codercontrolplane cancelled: not finished within 1 s")
    assert operator.log_entry("released the Lease")


async def test_roles_are_created_only_in_allowed_namespaces(start: Start, admin: Client, namespace: str) -> None:
    team, other = f"{namespace}-team", f"{namespace}-else"
    for name in (team, other):
        await admin.create(NAMESPACE, {"metadata": {"name": name}})
    start(f"--watch-namespaces={namespace},{team},{other}", f"--allow-workspace-namespaces={namespace}-t*,other")
    allowed, refused = Key(namespace, "allowed"), Key(namespace, "refused")
    await planes.make(admin, allowed, **planes.ALONE, rbac={"workspaceNamespaces": [team]})
    await planes.make(admin, refused, **planes.ALONE, rbac={"workspaceNamespaces": [other]})
    build, spec = Key(namespace, "build"), {"controlPlaneRef": {"name": "none"}, "workspaceNamespaces": [team, other]}
    await objects.create(admin, PROVISIONER, build, spec)

    async def bindings(place: str) -> int:
        return sum([len(page.items) async for page in admin.list(ROLE_BINDING, place)])

    await planes.condition(admin, allowed, "WorkspaceRBACReady", "Applied")
    await planes.condition(admin, refused, "WorkspaceRBACReady", "NamespaceNotAllowed")
    refusal = await objects.condition(admin, PROVISIONER, build, "WorkspaceRBACReady", "NamespaceNotAllowed")
    assert other in refusal.message
    assert await bindings(team) == 2
    assert await bindings(other) == 0
    await objects.delete(admin, PROVISIONER, build)
    await objects.gone(admin, PROVISIONER, build)
    for key in (allowed, refused):
        await admin.delete(CONTROL_PLANE, await admin.get(CONTROL_PLANE, key), unchanged=False)
        await eventually(lambda key=key: gone(admin, key))  # type: ignore[misc]
    assert await bindings(team) == 0


async def gone(admin: Client, plane: Key) -> bool:
    return not await planes.exists(admin, CONTROL_PLANE, plane)


async def test_the_number_of_workers_limits_concurrent_reconciles(
    start: Start, admin: Client, coderd: Coderd, plane: Key
) -> None:
    coderd.control("set", latency=60)
    keys = [plane, Key(plane.namespace, "second"), Key(plane.namespace, "third")]
    for key in keys[1:]:
        await planes.make(admin, key, operatorAccess={"tokenSecretRef": {"name": "token"}})
    operator = start(coderd.route(*keys), "--workers=2")
    for key in keys:
        await eventually(lambda key=key: planes.exists(admin, DEPLOYMENT, key))  # type: ignore[misc]
    for key in keys:
        await planes.serve(admin, key)

    async def one_waits() -> bool:
        return await operator.metric("workqueue_depth", name="codercontrolplane") == 1

    await eventually(lambda: coderd.control("requests").get(ME) == 2)
    await eventually(one_waits)
    assert coderd.control("requests")[ME] == 2
