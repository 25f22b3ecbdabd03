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

pytestmark = pytest.mark.slow

UPDATE = EVENTS["new schema"]
WRITES = ("stop the pods", "adopt the managed fields", "start the pod that migrates", "scale back")
"""The writes of the Deployment in an update."""


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[UpdateCrashScenario]:
    async with update_crash_scenario(cluster, operator_kubeconfig, postgres, namespace) as found:
        yield found


async def reconcile_stale(scenario: UpdateCrashScenario, version: str, stale: Stale) -> None:
    """Reconcile with stale state: neither the Deployment nor the control plane is written."""
    place, kubeconfig = scenario.demo, scenario.demo.kubeconfig
    written = await versions(scenario)
    async with stale(version) as (stale_kubeconfig, _):
        place.kubeconfig = stale_kubeconfig
        operator = place.operator(connect_to=scenario.routes)
        await operator.start()
        try:
            await eventually(lambda: operator.reconciles() >= 2, TIMEOUT)
            assert await versions(scenario) == written
        finally:
            await operator.kill()
            place.kubeconfig = kubeconfig


async def versions(scenario: UpdateCrashScenario) -> tuple[int, str]:
    """Generation of the Deployment, and resourceVersion of the control plane."""
    deployment = await scenario.demo.client.get(DEPLOYMENT, scenario.demo.key)
    return deployment.metadata.generation, (await scenario.demo.get()).metadata.resource_version


async def check(scenario: UpdateCrashScenario, stale: Stale, *points: str) -> None:
    """Take the view of the cluster before a write of the Deployment, and use it when the update is complete.

    Use it again when the database is restored and the old image runs.
    """
    seen, updated = await scenario.take(UPDATE.there), await scenario.state()
    _, restored = await scenario.take(UPDATE.back), await scenario.state()
    assert sum(map(is_deployment, seen)) == len(WRITES)
    for point in points:
        await UPDATE.there(scenario)
        number = WRITES.index(point) + 1
        assert await scenario.run_operator(number, before=True, among=is_deployment) is None
        version = await now(scenario.demo.client, scenario.demo.namespace)
        assert await scenario.run_operator() is not None
        await reconcile_stale(scenario, version, stale)
        assert await scenario.state() == updated, point
        await scenario.take(UPDATE.back)
        await reconcile_stale(scenario, version, stale)
        assert await scenario.state() == restored, point


def is_deployment(request: str) -> bool:
    """Whether it is a write of the Deployment, and not a dry run."""
    return request.startswith("PATCH ") and request.endswith("/deployments/demo")


@pytest.mark.timeout(300)
async def test_write_with_a_stale_cache(scenario: UpdateCrashScenario, stale: Stale) -> None:
    """The last write of the update has the new image, which would migrate the restored database again."""
    await check(scenario, stale, "scale back")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_every_write_with_a_stale_cache(scenario: UpdateCrashScenario, stale: Stale) -> None:
    await check(scenario, stale, *WRITES)
