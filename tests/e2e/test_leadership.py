"""Leader election between two processes."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key
from tests.e2e import planes
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support import eventually
from tests.support.proxy import Proxy

LEASE = "coder-k8s-controller.coder.com"
LEASE_SECONDS = 4
QUICK = [
    f"--leader-election-lease-duration={LEASE_SECONDS}s",
    "--leader-election-renew-deadline=2s",
    "--leader-election-retry-period=500ms",
]
Spec = Callable[[], dict[str, Any]]


@pytest.fixture
def spec(cluster: ClusterAccess, lease_namespace: str) -> Spec:
    """A function that reads the spec of the Lease."""

    def spec() -> dict[str, Any]:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{lease_namespace}/leases/{LEASE}"
        status, body = cluster.request("GET", path)
        found: dict[str, Any] = json.loads(body)["spec"] if status == 200 else {}
        return found

    return spec


def holder(spec: Spec) -> str:
    name: str = spec().get("holderIdentity", "")
    return name


async def leader_and_standby(start: Start, **leader: Any) -> tuple[OperatorProcess, OperatorProcess]:
    first = start(*QUICK, **leader)
    await eventually(first.leads)
    second = start(*QUICK)
    await eventually(second.is_ready)
    assert not await second.leads()
    return first, second


async def test_a_standby_takes_over_immediately_after_sigterm(start: Start, spec: Spec) -> None:
    # With default timing, only a release is this fast, not expiry.
    leader = start()
    await eventually(leader.leads)
    assert holder(spec) == leader.identity
    standby = start()
    await eventually(standby.is_ready)
    assert not await standby.leads()

    asked = time.monotonic()
    os.kill(leader.pid, signal.SIGTERM)
    await eventually(standby.leads, timeout=5)
    taken = time.monotonic() - asked
    assert taken < 2
    assert await leader.exit_code(within=5) == 0
    assert holder(spec) == standby.identity
    assert spec()["leaseTransitions"] == 1
    assert leader.log_entry("released the Lease")


async def test_sigterm_stops_a_standby(start: Start, spec: Spec) -> None:
    leader, standby = await leader_and_standby(start)
    os.kill(standby.pid, signal.SIGTERM)
    assert await standby.exit_code(within=5) == 0
    assert holder(spec) == leader.identity


async def test_a_standby_takes_over_from_a_killed_leader_when_the_lease_expires(start: Start, spec: Spec) -> None:
    leader, standby = await leader_and_standby(start)
    leader.kill()
    killed = time.monotonic()
    assert holder(spec) == leader.identity
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)
    assert time.monotonic() - killed < LEASE_SECONDS + 0.5
    assert await standby.leads()


async def test_a_leader_frozen_past_its_lease_exits_without_a_write(
    start: Start, spec: Spec, proxy: Proxy, proxied_kubeconfig: Path, admin: Client, lease_namespace: str
) -> None:
    leader, standby = await leader_and_standby(start, kubeconfig=proxied_kubeconfig)
    leader.pause()
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)
    before = list(proxy.writes)
    assert before, "the leader renewed its Lease through the proxy"
    plane = Key(lease_namespace, "new")
    await planes.make(admin, plane, **planes.ALONE)  # the first event that it will receive
    await eventually(lambda: planes.exists(admin, DEPLOYMENT, plane))

    leader.resume()
    assert await leader.exit_code(within=5) == 1
    assert proxy.writes == before
    assert holder(spec) == standby.identity
    assert "no longer leading" in leader.log_entries[-1]["msg"]
    assert not any("stack" in line for line in leader.log_entries)


async def test_a_leader_without_an_api_server_exits_before_its_lease_expires(
    start: Start, spec: Spec, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    leader, standby = await leader_and_standby(start, kubeconfig=proxied_kubeconfig)
    proxy.stop()
    stopped = time.monotonic()
    assert await leader.exit_code(within=LEASE_SECONDS) == 1
    assert time.monotonic() - stopped < LEASE_SECONDS
    assert holder(spec) == leader.identity, "it exited before another process could acquire the Lease"
    assert "no longer leading" in leader.log_entries[-1]["msg"]
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)


async def test_a_second_signal_exits_immediately(
    start: Start, proxy: Proxy, proxied_kubeconfig: Path, spec: Spec
) -> None:
    leader = start(kubeconfig=proxied_kubeconfig)
    await eventually(leader.leads)
    proxy.stop()  # so that the release hangs
    os.kill(leader.pid, signal.SIGINT)
    await eventually(lambda: leader.log_entry("stopping on a signal"))
    os.kill(leader.pid, signal.SIGINT)
    assert await leader.exit_code(within=2) == 1
    assert holder(spec) != ""


async def test_only_the_holder_of_the_lease_writes(
    cluster: ClusterAccess, namespace: str, proxy: Proxy, tmp_path: Path
) -> None:
    cluster.kubectl("create", "serviceaccount", "writer", "-n", namespace)
    account = f"--serviceaccount={namespace}:writer"
    cluster.kubectl("create", "rolebinding", "writer", "--clusterrole=cluster-admin", account, "-n", namespace)
    token = cluster.kubectl("create", "token", "writer", "-n", namespace).strip()
    direct = cluster.write_kubeconfig(tmp_path / "direct", {"token": token}, namespace)
    counted = proxy.kubeconfig(direct, tmp_path / "counted")

    def written_by(pid: int) -> int:
        _, body = cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/written-0")
        return int(json.loads(body).get("data", {}).get(f"writer-{pid}", -1))

    command = [sys.executable, "-m", "tests.e2e.busy_writer"]
    first = Process([*command, counted, namespace], tmp_path / "first.log")
    second = Process([*command, direct, namespace], tmp_path / "second.log")
    try:
        first.start()
        await eventually(lambda: written_by(first.pid) > 10, timeout=30)
        second.start()
        first.pause()
        await eventually(lambda: written_by(second.pid) > 10, timeout=30)
        arrived = list(proxy.writes)
        first.resume()
        assert await asyncio.to_thread(first.child.wait, 5) != 0
        assert proxy.writes == arrived
        assert second.running
    finally:
        first.kill()
        second.kill()
