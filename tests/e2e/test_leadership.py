"""Two real processes and one Lease."""

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
    """What the Lease says now."""

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


async def test_sigterm_hands_over_at_once(start: Start, spec: Spec) -> None:
    # The default timing: only the release, not the end of a lease, can be this quick.
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
    assert await leader.ended(within=5) == 0
    assert holder(spec) == standby.identity
    assert spec()["leaseTransitions"] == 1
    assert leader.heard("released the Lease")


async def test_sigterm_ends_a_standby_too(start: Start, spec: Spec) -> None:
    leader, standby = await leader_and_standby(start)
    os.kill(standby.pid, signal.SIGTERM)
    assert await standby.ended(within=5) == 0
    assert holder(spec) == leader.identity


async def test_a_killed_leader_is_succeeded_within_the_lease(start: Start, spec: Spec) -> None:
    leader, standby = await leader_and_standby(start)
    leader.kill()
    killed = time.monotonic()
    assert holder(spec) == leader.identity
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)
    assert time.monotonic() - killed < LEASE_SECONDS + 0.5
    assert await standby.leads()


async def test_who_was_frozen_past_its_lease_writes_nothing_and_ends(
    start: Start, spec: Spec, proxy: Proxy, proxied_kubeconfig: Path, admin: Client, lease_namespace: str
) -> None:
    leader, standby = await leader_and_standby(start, kubeconfig=proxied_kubeconfig)
    leader.pause()
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)
    before = list(proxy.writes)
    assert before, "the leader renewed its Lease through the proxy"
    plane = Key(lease_namespace, "new")
    await planes.make(admin, plane, **planes.ALONE)  # the first thing that it will hear of
    await eventually(lambda: planes.exists(admin, DEPLOYMENT, plane))

    leader.resume()
    assert await leader.ended(within=5) == 1
    assert proxy.writes == before
    assert holder(spec) == standby.identity
    assert "no longer leading" in leader.said[-1]["msg"]
    assert not any("stack" in line for line in leader.said)


async def test_who_cannot_reach_the_api_server_stops_before_its_lease_runs_out(
    start: Start, spec: Spec, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    leader, standby = await leader_and_standby(start, kubeconfig=proxied_kubeconfig)
    proxy.stop()
    stopped = time.monotonic()
    assert await leader.ended(within=LEASE_SECONDS) == 1
    assert time.monotonic() - stopped < LEASE_SECONDS
    assert holder(spec) == leader.identity, "it ended before anyone could take the Lease"
    assert "no longer leading" in leader.said[-1]["msg"]
    await eventually(lambda: holder(spec) == standby.identity, timeout=LEASE_SECONDS + 5)


async def test_a_second_signal_ends_it_at_once(
    start: Start, proxy: Proxy, proxied_kubeconfig: Path, spec: Spec
) -> None:
    leader = start(kubeconfig=proxied_kubeconfig)
    await eventually(leader.leads)
    proxy.stop()  # so that the release hangs
    os.kill(leader.pid, signal.SIGINT)
    await eventually(lambda: leader.heard("stopping on a signal"))
    os.kill(leader.pid, signal.SIGINT)
    assert await leader.ended(within=2) == 1
    assert holder(spec) != ""


async def test_of_two_busy_writers_only_the_holder_of_the_lease_writes(
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
