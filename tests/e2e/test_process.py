"""Probes, metrics, log and resource usage of the operator process."""

import asyncio
import itertools
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Kind, Manifest
from coder_k8s.settings import Settings
from tests.e2e import planes
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support import eventually
from tests.support.installation import confined_kubeconfig, install_crds, write_operator_kubeconfig
from tests.support.proxy import Proxy

CONTROLLERS = ("codercontrolplane", "coderprovisioner", "coderworkspaceproxy")
OBJECTS: dict[Kind[Any], Manifest] = {
    CONTROL_PLANE: planes.ALONE,
    PROVISIONER: {"controlPlaneRef": {"name": "absent"}},
    WORKSPACE_PROXY: {"controlPlaneRef": {"name": "absent"}},
}


@pytest.fixture
async def objects(admin: Client, namespace: str) -> None:
    """One object of each kind."""
    for kind, spec in OBJECTS.items():
        await admin.create(kind, {"metadata": {"namespace": namespace, "name": "one"}, "spec": spec})


async def checks(operator: OperatorProcess, path: str) -> tuple[int, dict[str, str]]:
    """The status of a probe, and the result of each check."""
    status, text = await operator.get("health", f"{path}?verbose")
    return status, dict(re.findall(r"^\[[+-]\] ([^:]+): (.*)$", text, re.MULTILINE))


async def test_the_operator_is_ready_when_all_caches_are_synced(
    start: Start, namespace: str, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    proxy.hold = lambda request: f"/{namespace}/coderprovisioners?limit" in request
    operator = start(kubeconfig=proxied_kubeconfig)

    async def all_but_one() -> bool:
        status, results = await checks(operator, "/readyz")
        assert status == 503
        return [name for name, text in results.items() if text != "ok"] == ["cache coderprovisioners.coder.com"]

    await eventually(all_but_one)
    assert (await operator.get("health", "/healthz"))[0] == 200
    assert not proxy.writes, "an operator that is not ready does not compete for the Lease"
    proxy.release()
    await eventually(operator.is_ready)
    await eventually(operator.leads)
    assert not [watch for watch in proxy.watches if "/leases" in watch], "a free Lease is acquired without a watch"
    _, results = await checks(operator, "/readyz")
    caches = {name.removeprefix("cache ") for name in results if name.startswith("cache ")}
    assert caches == {name.removeprefix("watch ") for name in results if name.startswith("watch ")}
    assert {str(kind) for kind in OBJECTS} < caches
    assert {"deployments.apps", "secrets", "secrets (metadata)"} < caches


async def test_sigterm_stops_it_before_it_is_ready(
    start: Start, namespace: str, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    proxy.hold = lambda request: f"/{namespace}/coderprovisioners?limit" in request
    operator = start(kubeconfig=proxied_kubeconfig)
    await eventually(lambda: any(map(proxy.hold, proxy.requests)))
    os.kill(operator.pid, signal.SIGTERM)
    assert await operator.exit_code(within=3) == 0
    assert not proxy.writes


async def test_sigterm_stops_it_while_the_api_server_hangs(
    start: Start, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    proxy.stop()
    operator = start(kubeconfig=proxied_kubeconfig)
    await eventually(lambda: proxy.requests)
    os.kill(operator.pid, signal.SIGTERM)
    assert await operator.exit_code(within=3) == 0


async def test_a_stalled_watch_fails_liveness(
    start: Start, admin: Client, namespace: str, objects: None, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    operator = start("--no-leader-elect", "--watch-silence-limit=3s", kubeconfig=proxied_kubeconfig)
    await eventually(operator.is_ready)
    touched = {f"watch {kind}" for kind in OBJECTS}

    async def silent() -> set[str]:
        """The limit is shorter than the interval of bookmarks: only watches with events are alive."""
        status, results = await checks(operator, "/healthz")
        found = {name for name, text in results.items() if re.match(r"idle for \d+ s", text)}
        assert status == (500 if found else 200)
        return found

    async with touching(admin, namespace):

        async def some() -> set[str]:
            found = await silent()
            assert not found & touched
            return found

        assert await eventually(some)
        proxy.stop()
        _, results = await checks(operator, "/healthz")

        async def all_are_named() -> bool:
            return await silent() == set(results)

        await eventually(all_are_named)
    assert touched < set(results)
    assert not await operator.is_ready()


@asynccontextmanager
async def touching(admin: Client, namespace: str) -> AsyncIterator[None]:
    """Keep events flowing on the watches of the custom resources."""

    async def keep_touching() -> None:
        for number in itertools.count():
            for kind in OBJECTS:
                touch = {"metadata": {"annotations": {"touched": str(number)}}}
                await admin.merge(kind, Key(namespace, "one"), touch)
            await asyncio.sleep(0.1)

    toucher = asyncio.create_task(keep_touching())
    try:
        yield
    finally:
        assert not toucher.done(), toucher.exception()
        toucher.cancel()


async def test_metrics_of_a_running_operator(start: Start, objects: None) -> None:
    operator = start("--log-level=debug")
    await eventually(operator.leads)

    async def reconciled(controller: str) -> bool:
        return await operator.metric("controller_runtime_reconcile_total", controller=controller) >= 1

    for controller in CONTROLLERS:
        await eventually(lambda controller=controller: reconciled(controller))  # type: ignore[misc]
        assert await operator.metric("controller_runtime_reconcile_errors_total", controller=controller) == 0
        assert await operator.metric("controller_runtime_reconcile_time_seconds_count", controller=controller) >= 1
        workers = await operator.metric("controller_runtime_max_concurrent_reconciles", controller=controller)
        assert workers == Settings.workers
        assert await operator.metric("workqueue_depth", name=controller) >= 0
        assert await operator.metric("workqueue_adds_total", name=controller) >= 1
    for kind in OBJECTS:
        assert 0 <= await operator.metric("coder_k8s_watch_age_seconds", kind=str(kind)) < 70
        assert await operator.metric("coder_k8s_cached_objects", kind=str(kind)) == 1
    assert await operator.metric("leader_election_master_status", name="coder-k8s-controller.coder.com") == 1
    assert await operator.metric("rest_client_requests_total", code="200", method="GET") > 3
    assert await operator.metric("process_resident_memory_bytes") > 0


async def test_roles_in_the_watched_namespaces_are_sufficient(
    launch: Start, cluster: ClusterAccess, admin: Client, objects: None, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = confined_kubeconfig(cluster, namespace, tmp_path / "kubeconfig")
    operator = launch(kubeconfig, f"--watch-namespaces={namespace}", f"--leader-election-namespace={namespace}")
    await eventually(operator.leads)
    assert await operator.is_ready()
    plane = Key(namespace, "one")
    await planes.condition(admin, plane, "WorkspaceRBACReady", "Applied")
    assert await operator.metric("coder_k8s_object_ready", kind=CONTROL_PLANE.name, name="one") == 0
    assert await operator.metric("coder_k8s_object_ready_replicas", kind=CONTROL_PLANE.name, name="one") == 0
    assert await operator.metric("coder_k8s_object_desired_replicas", kind=CONTROL_PLANE.name, name="one") == 1
    await planes.serve(admin, plane)
    await planes.condition(admin, plane, "Ready", "AllReady")
    ready = partial(operator.count, "coder_k8s_object_ready", name="one", reason="AllReady")
    assert await eventually(ready) == 1  # others may see a write before the operator receives its response
    assert await operator.metric("coder_k8s_object_ready_replicas", kind=CONTROL_PLANE.name, name="one") == 1
    assert not operator.log_entry("forbidden")


@pytest.mark.slow
async def test_the_operator_waits_for_missing_crds(launch: Start, fresh_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    operator = launch(kubeconfig, "--leader-election-namespace=coder-system")
    for kind in ("codercontrolplanes", "coderprovisioners", "coderworkspaceproxies", "codertemplates"):
        line = await eventually(partial(operator.log_entry, f"the API server does not serve {kind}.coder.com"))
        assert "install its CustomResourceDefinition" in line["msg"]
    assert (await operator.get("health", "/healthz"))[0] == 200

    async def cause_is_named() -> bool:
        status, results = await checks(operator, "/readyz")
        assert status == 503
        cause = results["cache codercontrolplanes.coder.com"]
        assert "the API server does not serve codercontrolplanes.coder.com" in cause, "or it is not listed yet"
        return True

    await eventually(cause_is_named)
    install_crds(fresh_cluster)
    await eventually(operator.leads, timeout=20)
    assert await operator.is_ready()
    os.kill(operator.pid, signal.SIGTERM)
    assert await operator.exit_code(within=5) == 0


@pytest.mark.slow
async def test_it_survives_a_restart_of_the_api_server(launch: Start, fresh_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    install_crds(fresh_cluster)
    fresh_cluster.kill_apiserver()
    flags = ("--leader-election-lease-duration=60s", "--leader-election-renew-deadline=40s")
    operator = launch(kubeconfig, "--leader-election-namespace=coder-system", *flags)
    fresh_cluster.start_apiserver()  # within the time that a starting operator waits
    await eventually(operator.leads, timeout=20)
    fresh_cluster.kill_apiserver()
    fresh_cluster.start_apiserver()
    fresh_cluster.kubectl("create", "namespace", "later")
    new = {"apiVersion": CONTROL_PLANE.api_version, "kind": CONTROL_PLANE.name, "spec": planes.ALONE}
    manifest = json.dumps({**new, "metadata": {"name": "new", "namespace": "later"}})
    fresh_cluster.kubectl("create", "--filename=-", input=manifest)

    def deployed() -> bool:
        return fresh_cluster.request("GET", DEPLOYMENT.path(Key("later", "new")))[0] == 200

    await eventually(deployed, timeout=20)
    assert await operator.leads()
