"""Operators with a stale view of the cluster, and the state that they must not change."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import newer
from tests.support import eventually
from tests.support.crashes import CrashRun
from tests.support.forwarding import StaleView
from tests.support.workspaceproxies import NAME, ProxyNamespace, proxy_namespace

TIMEOUT = 30.0

Stale = Callable[[str], AbstractAsyncContextManager[tuple[Path, StaleView]]]


@pytest.fixture
def stale(cluster: ClusterAccess, operator_kubeconfig: Path, tmp_path: Path) -> Stale:
    """`stale(version)` yields a kubeconfig for a proxy that serves the state at that version, and the proxy."""

    @asynccontextmanager
    async def stale(version: str) -> AsyncIterator[tuple[Path, StaleView]]:
        async with StaleView(cluster, version) as server:
            yield server.kubeconfig(operator_kubeconfig, tmp_path / "stale"), server

    return stale


async def now(client: Client, namespace: str) -> str:
    """The current resourceVersion."""
    return [page async for page in client.list(SECRET, namespace)][-1].resource_version


@pytest.fixture
async def steady(trial: CrashRun) -> CrashRun:
    """A namespace with a provisioner in steady state."""
    await trial.site.make()
    assert await trial.wait_steady()
    return trial


def key_ids(trial: CrashRun) -> set[str]:
    return {found.key.id for found in trial.site.found()}


async def reconcile_stale_provisioner(trial: CrashRun, version: str, stale: Stale) -> None:
    """Reconcile with stale state, check that coderd keeps its keys, then catch up."""
    await trial.operator.kill()
    present = key_ids(trial)
    async with stale(version) as (kubeconfig, server):
        trial.site.kubeconfig = kubeconfig
        await trial.start()
        for _ in range(3):
            assert await trial.operator.wait_idle(stale=True)
            assert key_ids(trial) == present
            trial.enqueue()
        await server.catch_up()
        try:
            assert await eventually(trial.wait_steady, TIMEOUT)
        finally:
            await trial.operator.kill()


@pytest.fixture
async def ready_proxy(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProxyNamespace]:
    async with proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        await place.make(NAME)
        async with place.operator() as operator:
            await place.ready(operator)
        yield place


async def reconcile_stale_proxy(place: ProxyNamespace, version: str, stale: Stale) -> None:
    """Reconcile with stale state, then catch up; coderd must keep its proxy and the token."""
    [before] = place.proxies.values()
    token, changes = await place.token(), place.changes()
    async with stale(version) as (kubeconfig, server):
        place.kubeconfig = kubeconfig
        async with place.operator() as operator:
            await eventually(lambda: operator.reconciles() >= 2, TIMEOUT)
            await server.catch_up()
            live = await place.get()
            proxies = operator.informers[WORKSPACE_PROXY]
            await eventually(
                lambda: not newer(live.metadata.resource_version, proxies.last_sync_version(place.namespace))
            )
            await operator.wait_idle()
    [after] = place.proxies.values()
    assert (after.id, await place.token(), place.changes()) == (before.id, token, changes)
