"""The operator process from outside: probes, metrics, what it says, what it costs."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from coder_k8s.dev.cluster import Cluster, ClusterAccess
from tests.e2e.operator_process import OperatorProcess
from tests.support import eventually
from tests.support.api_proxy import ApiProxy
from tests.support.operator import CONFIG, install_crds, write_operator_kubeconfig

Start = Callable[..., OperatorProcess]

API = "/apis/coder.com/v1alpha1"
CONTROLLERS = ("codercontrolplane", "coderprovisioner", "coderworkspaceproxy")
OBJECTS: dict[str, dict[str, Any]] = {
    "codercontrolplanes": {"kind": "CoderControlPlane", "spec": {}},
    "coderprovisioners": {"kind": "CoderProvisioner", "spec": {"controlPlaneRef": {"name": "plane"}}},
    "coderworkspaceproxies": {"kind": "CoderWorkspaceProxy", "spec": {"controlPlaneRef": {"name": "plane"}}},
}


def create(cluster: ClusterAccess, namespace: str, plural: str, name: str) -> None:
    manifest = {"apiVersion": "coder.com/v1alpha1", "metadata": {"name": name}, **OBJECTS[plural]}
    status, body = cluster.request("POST", f"{API}/namespaces/{namespace}/{plural}", manifest)
    assert status == 201, body


@pytest.fixture
def objects(cluster: ClusterAccess, crds: None, namespace: str) -> Iterator[None]:
    """One object of each kind."""
    for plural in OBJECTS:
        create(cluster, namespace, plural, "one")
    yield
    for plural in OBJECTS:
        cluster.request("DELETE", f"{API}/namespaces/{namespace}/{plural}")


async def test_it_is_ready_when_the_last_cache_is_complete(
    start: Start, proxy: ApiProxy, proxied_kubeconfig: Path
) -> None:
    proxy.hold = lambda request: request.method == "GET" and f"{API}/coderprovisioners?limit" in request.path
    operator = start(kubeconfig=proxied_kubeconfig)

    async def all_but_one() -> bool:
        status, text = await operator.get("health", "/readyz")
        assert status == 503
        return text.count("[+] cache") == 2 and "[-] cache coderprovisioners.coder.com: not listed yet" in text

    await eventually(all_but_one)
    assert (await operator.get("health", "/healthz"))[0] == 200
    assert not proxy.writes, "who is not ready does not compete for the Lease"
    proxy.let_go()
    await eventually(operator.is_ready)
    await eventually(operator.leads)
    _, text = await operator.get("health", "/readyz?verbose")
    assert text.count("[+]") == 6


async def test_a_watch_that_went_dead_fails_liveness(
    start: Start, cluster: ClusterAccess, namespace: str, objects: None, proxy: ApiProxy, proxied_kubeconfig: Path
) -> None:
    operator = start("--no-leader-elect", "--watch-silence-limit=3s", kubeconfig=proxied_kubeconfig)
    await eventually(operator.is_ready)

    async def health() -> tuple[int, str]:
        return await operator.get("health", "/healthz")

    async with touching(cluster, namespace):
        lively_until = time.monotonic() + 4
        while time.monotonic() < lively_until:
            assert (await health())[0] == 200
            await asyncio.sleep(0.1)
        proxy.stop()

        async def every_watch_is_named() -> bool:
            status, text = await health()
            silent = re.findall(r"\[-\] watch (\w+)\.coder\.com: silent for \d+ s", text)
            return status == 500 and silent == list(OBJECTS)

        await eventually(every_watch_is_named)
    assert not await operator.is_ready()


@asynccontextmanager
async def touching(cluster: ClusterAccess, namespace: str) -> AsyncIterator[None]:
    """Every watch has something to say all the time."""

    def touch(number: int) -> None:
        for plural, rest in OBJECTS.items():
            metadata = {"name": "one", "annotations": {"touched": str(number)}}
            manifest = {"apiVersion": "coder.com/v1alpha1", "metadata": metadata, **rest}
            _, body = cluster.request("GET", f"{API}/namespaces/{namespace}/{plural}/one")
            metadata["resourceVersion"] = json.loads(body)["metadata"]["resourceVersion"]
            status, body = cluster.request("PUT", f"{API}/namespaces/{namespace}/{plural}/one", manifest)
            assert status == 200, body

    async def keep_touching() -> None:
        number = 0
        while True:
            number += 1
            await asyncio.to_thread(touch, number)
            await asyncio.sleep(0.1)

    toucher = asyncio.create_task(keep_touching())
    try:
        yield
    finally:
        assert not toucher.done(), toucher.exception()
        toucher.cancel()


async def test_metrics_tell_what_goes_on(start: Start, objects: None) -> None:
    operator = start("--log-level=debug")
    await eventually(operator.leads)

    async def reconciled(controller: str) -> bool:
        labels = {"controller": controller, "result": "success"}
        return await operator.metric("controller_runtime_reconcile_total", **labels) >= 1

    for controller in CONTROLLERS:
        await eventually(lambda controller=controller: reconciled(controller))  # type: ignore[misc]
        assert await operator.metric("controller_runtime_reconcile_errors_total", controller=controller) == 0
        assert await operator.metric("controller_runtime_reconcile_time_seconds_count", controller=controller) >= 1
        assert await operator.metric("controller_runtime_max_concurrent_reconciles", controller=controller) == 8
        assert await operator.metric("workqueue_depth", name=controller) == 0
        assert await operator.metric("workqueue_adds_total", name=controller) >= 1
    for plural in OBJECTS:
        assert 0 <= await operator.metric("coder_k8s_watch_age_seconds", kind=f"{plural}.coder.com") < 70
        assert await operator.metric("coder_k8s_cached_objects", kind=f"{plural}.coder.com") >= 1
    assert await operator.metric("leader_election_master_status", name="coder-k8s-controller.coder.com") == 1
    assert await operator.metric("rest_client_requests_total", code="200", method="GET") > 3
    assert await operator.metric("process_resident_memory_bytes") > 0


async def test_roles_in_the_watched_namespaces_suffice(
    cluster: ClusterAccess, crds: None, objects: None, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = confined_kubeconfig(cluster, namespace, tmp_path / "kubeconfig")
    confined = (f"--watch-namespaces={namespace}", f"--leader-election-namespace={namespace}")
    operator = OperatorProcess("operator", tmp_path, kubeconfig, *confined)
    operator.start()
    try:
        await eventually(operator.leads)
        assert await operator.is_ready()
        assert await operator.metric("coder_k8s_cached_objects", kind="codercontrolplanes.coder.com") == 1
    finally:
        operator.kill()


def confined_kubeconfig(cluster: ClusterAccess, namespace: str, path: Path) -> Path:
    """An operator that has nothing but the generated Roles, in one namespace."""
    manifests: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "confined"}}]
    for name in ("leader-election.yaml", "namespaced/operator.yaml"):
        manifests += yaml.safe_load_all((CONFIG / "rbac" / name).read_text())
    for manifest in manifests:
        manifest["metadata"]["namespace"] = namespace
        for subject in manifest.get("subjects", ()):
            subject |= {"name": "confined", "namespace": namespace}
    cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(manifests))
    token = cluster.kubectl("create", "token", "confined", "--namespace", namespace).strip()
    return cluster.write_kubeconfig(path, {"token": token}, namespace)


async def test_it_waits_for_kinds_that_are_not_installed(fresh_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    operator = OperatorProcess("operator", tmp_path, kubeconfig, "--leader-election-namespace=coder-system")
    operator.start()
    try:
        told = await eventually(lambda: operator.heard("not installed"))
        assert told["level"] == "error"
        assert "CoderControlPlane, CoderProvisioner, CoderWorkspaceProxy" in told["msg"]
        assert "kubectl apply -k config/crd" in told["msg"]
        assert (await operator.get("health", "/healthz"))[0] == 200
        status, text = await operator.get("health", "/readyz")
        assert status == 503
        assert "the API server does not know codercontrolplanes.coder.com" in text
        install_crds(fresh_cluster)
        await eventually(operator.leads, timeout=20)
        assert await operator.is_ready()
        os.kill(operator.pid, signal.SIGTERM)
        assert await operator.ended(within=5) == 0
    finally:
        operator.kill()


async def test_it_rides_out_an_api_server_that_restarts(fresh_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    install_crds(fresh_cluster)
    flags = ("--leader-election-lease-duration=60s", "--leader-election-renew-deadline=40s")
    operator = OperatorProcess("operator", tmp_path, kubeconfig, "--leader-election-namespace=coder-system", *flags)
    fresh_cluster.kill_apiserver()
    operator.start()
    fresh_cluster.start_apiserver()  # within the time that a starting operator waits
    try:
        await eventually(operator.leads, timeout=20)
        fresh_cluster.kill_apiserver()
        fresh_cluster.start_apiserver()
        fresh_cluster.kubectl("create", "namespace", "later")
        create(fresh_cluster, "later", "codercontrolplanes", "new")
        cached = {"kind": "codercontrolplanes.coder.com"}

        async def seen() -> bool:
            return await operator.metric("coder_k8s_cached_objects", **cached) == 1

        await eventually(seen, timeout=20)
        assert await operator.leads()
    finally:
        operator.kill()


async def test_what_it_costs(
    start: Start, cluster: ClusterAccess, crds: None, namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(300):
        await asyncio.to_thread(create, cluster, namespace, "codercontrolplanes", f"plane-{number}")
    began = time.monotonic()
    operator = start()
    await eventually(operator.is_ready)
    ready = time.monotonic() - began
    await eventually(operator.leads)

    async def reconciled() -> bool:
        return await operator.metric("controller_runtime_reconcile_total", controller="codercontrolplane") >= 300

    await eventually(reconciled)
    resident = await operator.metric("process_resident_memory_bytes")
    with capfd.disabled():
        sys.stderr.write(f"\nready {ready:.2f} s after exec with 300 objects, {resident / 2**20:.1f} MB resident\n")
    cluster.request("DELETE", f"{API}/namespaces/{namespace}/codercontrolplanes")
