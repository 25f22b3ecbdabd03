"""What the operator costs: time, memory, and no write for what is as it should be."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from tests.e2e import planes
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support import eventually
from tests.support.operator import install_crds, write_operator_kubeconfig

NUMBER = 300
CHILDREN = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT, SERVICE)


@pytest.mark.timeout(400)
async def test_what_it_costs(
    launch: Start, fresh_cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install_crds(fresh_cluster)
    fresh_cluster.kubectl("create", "namespace", "many")
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")

    first = launch(kubeconfig, "--leader-election-namespace=coder-system")
    await eventually(first.leads)
    idle = await megabytes(first)
    async with Http(load(fresh_cluster.kubeconfig), "test", Metrics()) as http:
        admin = Client(http, "somebody")
        began = time.monotonic()
        for batch in range(0, NUMBER, 10):
            keys = [Key("many", f"plane-{number}") for number in range(batch, batch + 10)]
            await asyncio.gather(*(planes.make(admin, key, **planes.ALONE) for key in keys))
        await eventually(lambda: complete(admin), timeout=200)
        made = time.monotonic() - began
    await eventually(lambda: at_rest(first))
    each = await first.writes() / NUMBER
    assert each >= len(CHILDREN) + 1
    os.kill(first.pid, signal.SIGTERM)
    assert await first.ended(within=10) == 0

    began = time.monotonic()
    second = launch(kubeconfig, "--no-leader-elect")  # so that a Lease is not among what it writes
    await eventually(second.is_ready)
    ready = time.monotonic() - began
    await eventually(lambda: at_rest(second), timeout=60)
    assert await second.writes() == 0
    with capfd.disabled():
        sys.stderr.write(
            f"\n{NUMBER} control planes made in {made:.1f} s with {each:.2f} writes each; after a restart ready in "
            f"{ready:.2f} s, no write; {idle:.1f} MB resident idle, {await megabytes(second):.1f} MB with all of them\n"
        )


async def megabytes(operator: OperatorProcess) -> float:
    return await operator.metric("process_resident_memory_bytes") / 2**20


async def complete(admin: Client) -> bool:
    """Every control plane has all its children, and says so."""
    for kind in CHILDREN:
        if sum([len(page.items) async for page in admin.list(kind, "many")]) < NUMBER:
            return False
    pages = [page async for page in admin.list(CONTROL_PLANE, "many")]
    found = [CONTROL_PLANE.type.decode(item) for page in pages for item in page.items]
    return all(plane.status.observed_generation == plane.metadata.generation for plane in found)


async def at_rest(operator: OperatorProcess) -> bool:
    """It has looked at each, and has nothing left to do."""
    controller = {"controller": "codercontrolplane"}
    return (
        await operator.metric("controller_runtime_reconcile_total", **controller) >= NUMBER
        and await operator.metric("workqueue_depth", **controller) == 0
        and await operator.metric("controller_runtime_active_workers", **controller) == 0
    )
