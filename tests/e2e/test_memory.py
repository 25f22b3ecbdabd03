"""Unrelated Secrets take little memory in the operator."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import find
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.metrics import Metrics
from tests.e2e.operator_process import OperatorProcess
from tests.support import eventually
from tests.support.installation import NAMESPACE, install_crds, write_operator_kubeconfig

SECRETS = 1000
SIZE = 20_000
LIMIT = 10.0
AT_ONCE = 32


@pytest.fixture
async def admin(fresh_cluster: Cluster) -> AsyncIterator[Client]:
    async with Http(load(fresh_cluster.kubeconfig), "user", Metrics()) as http:
        yield Client(http, "user")


async def make_secrets(client: Client, number: int) -> None:
    """Create unrelated Secrets concurrently."""
    data = {"blob": base64.b64encode(os.urandom(SIZE * 3 // 4)).decode()}
    names = iter(range(number))

    async def make() -> None:
        for count in names:
            await client.create(SECRET, {"metadata": {"namespace": "default", "name": f"other-{count}"}, "data": data})

    await asyncio.gather(*(make() for _ in range(AT_ONCE)))


@contextmanager
def running(name: str, folder: Path, kubeconfig: Path) -> Iterator[OperatorProcess]:
    operator = OperatorProcess(name, folder, kubeconfig, f"--leader-election-namespace={NAMESPACE}")
    operator.start()
    try:
        yield operator
    finally:
        operator.kill()


def megabytes(operator: OperatorProcess) -> float:
    lines = Path(f"/proc/{operator.pid}/status").read_text().splitlines()
    [resident] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(resident) / 1024


@pytest.mark.slow
async def test_unrelated_secrets_take_little_memory(fresh_cluster: Cluster, admin: Client, tmp_path: Path) -> None:
    install_crds(fresh_cluster)
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    spec = {"operatorAccess": {"disabled": True}, "envFrom": [{"secretRef": {"name": "last"}}]}
    plane = await admin.create(CONTROL_PLANE, {"metadata": {"namespace": "default", "name": "demo"}, "spec": spec})

    async def waits_for_secret() -> bool:
        available = find((await admin.get(CONTROL_PLANE, plane.key)).status.conditions, "Available")
        return available is not None and available.message == "Pods cannot start: Secret last does not exist"

    async def has_seen_secret() -> bool:
        return not await waits_for_secret()

    with running("first", tmp_path, kubeconfig) as operator:
        await eventually(waits_for_secret, timeout=30)
        before = megabytes(operator)
        await make_secrets(admin, SECRETS)
        await admin.create(SECRET, {"metadata": {"namespace": "default", "name": "last"}})
        await eventually(has_seen_secret, timeout=30)  # and therefore all earlier ones
        watched = megabytes(operator)
    with running("second", tmp_path, kubeconfig) as operator:
        await eventually(operator.is_ready, timeout=30)
        listed = megabytes(operator)
    print(  # noqa: T201 - reports the measurement
        f"RSS {before:.1f} MB, {watched:.1f} MB with {SECRETS} Secrets, {listed:.1f} MB after a restart"
    )
    assert watched - before < LIMIT
    assert listed - before < LIMIT
