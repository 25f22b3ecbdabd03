"""An operator with a stale cache does not repeat a step of an update that is over."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.kinds import DEPLOYMENT
from tests.support import eventually

from .stale_views import TIMEOUT, Stale, now
from .update_crash_scenario import EVENTS, UpdateCrashScenario, update_crash_scenario

UPDATE = EVENTS["new schema"]


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[UpdateCrashScenario]:
    async with update_crash_scenario(cluster, operator_kubeconfig, postgres, namespace) as found:
        yield found


async def reconcile_stale(scenario: UpdateCrashScenario, version: str, stale: Stale) -> None:
    """Reconcile with stale state: the Deployment, the status and the database do not change."""
    place, kubeconfig = scenario.demo, scenario.demo.kubeconfig
    state, generation = await scenario.state(), await deployed(scenario)
    async with stale(version) as (stale_kubeconfig, _):
        place.kubeconfig = stale_kubeconfig
        operator = place.operator(connect_to=scenario.routes)
        await operator.start()
        try:
            await eventually(lambda: operator.reconciles() >= 2, TIMEOUT)
            assert await deployed(scenario) == generation
        finally:
            await operator.kill()
            place.kubeconfig = kubeconfig
    assert await scenario.run_operator() is not None
    assert await scenario.state() == state


async def deployed(scenario: UpdateCrashScenario) -> int:
    """The generation of the Deployment."""
    return (await scenario.demo.client.get(DEPLOYMENT, scenario.demo.key)).metadata.generation


async def check(scenario: UpdateCrashScenario, stale: Stale, points: slice) -> None:
    """Take the view of the cluster before a write of the Deployment, complete the update, and use this view."""
    seen = await scenario.take(UPDATE.there)
    await scenario.take(UPDATE.back)
    writes = [number for number, request in enumerate(seen, 1) if is_deployment(request)]
    assert len(writes) > 3
    for number in writes[points]:
        await UPDATE.there(scenario)
        assert await scenario.run_operator(number, before=True) is None
        version = await now(scenario.demo.client, scenario.demo.namespace)
        assert await scenario.run_operator() is not None
        await reconcile_stale(scenario, version, stale)
        await scenario.take(UPDATE.back)


def is_deployment(request: str) -> bool:
    return request.startswith("PATCH ") and request.endswith("/deployments/demo")


@pytest.mark.timeout(300)
async def test_write_with_a_stale_cache(scenario: UpdateCrashScenario, stale: Stale) -> None:
    """The fourth write of the Deployment starts the pod that migrates."""
    await check(scenario, stale, slice(3, 4))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_every_write_with_a_stale_cache(scenario: UpdateCrashScenario, stale: Stale) -> None:
    await check(scenario, stale, slice(None))
