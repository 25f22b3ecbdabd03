"""After a crash at any request, the next operator reaches the same state as without the crash."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.postgres import Postgres
from tests.controllers.controlplane.administrator import install_gateway_api
from tests.support.crash_injector import CrashInjector
from tests.support.crash_scenarios import crash_everywhere, kill_everywhere
from tests.support.installation import install_crds, write_operator_kubeconfig

from .plane_crash_scenario import EVENTS, PlaneCrashScenario, crash_scenario

pytestmark = pytest.mark.slow

SLICE = 2
"""The number of crash points per event outside of the campaign."""
IGNORED = ("POST events", "PATCH events/*")
"""Written concurrently to reconciles, at random times."""


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[PlaneCrashScenario]:
    """An operator that watches some namespaces and allows workspaces in them by a flag."""
    async with crash_scenario(cluster, operator_kubeconfig, postgres, namespace, everywhere=False) as scenario:
        yield scenario


@pytest.fixture
async def whole_scenario(
    fresh_cluster: Cluster, postgres: Postgres, tmp_path: Path
) -> AsyncIterator[PlaneCrashScenario]:
    """An operator that watches a whole cluster with the Gateway API; the other namespaces opt in by a label."""
    install_crds(fresh_cluster)
    install_gateway_api(fresh_cluster)
    fresh_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "home"}})
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    async with crash_scenario(fresh_cluster, kubeconfig, postgres, "home", everywhere=True) as scenario:
        yield scenario


@pytest.mark.parametrize("event", ["life", "exposure", "token moved", "access given"])
async def test_recovers_from_some_crashes(scenario: PlaneCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], SLICE)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_recovers_from_every_crash(whole_scenario: PlaneCrashScenario, event: str) -> None:
    print(f"{event}: {await crash_everywhere(whole_scenario, EVENTS[event])} crashes")  # noqa: T201


@pytest.fixture
async def injector(
    scenario: PlaneCrashScenario, cluster: ClusterAccess, operator_kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[CrashInjector]:
    watched, allowed = ",".join(scenario.demo.watched), f"{scenario.demo.namespace}-*"
    flags = (f"--watch-namespaces={watched}", f"--allow-workspace-namespaces={allowed}")
    async with CrashInjector(cluster, operator_kubeconfig, tmp_path, scenario.routes, IGNORED, *flags).ready() as made:
        yield made


async def test_recovers_from_sigkill(scenario: PlaneCrashScenario, injector: CrashInjector) -> None:
    assert await kill_everywhere(scenario, injector, EVENTS["token moved"], most=1) == 2


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", ["life", "token moved", "license"])
async def test_recovers_from_sigkill_after_every_request(
    scenario: PlaneCrashScenario, injector: CrashInjector, event: str
) -> None:
    print(f"{event}: {await kill_everywhere(scenario, injector, EVENTS[event])} kills")  # noqa: T201
