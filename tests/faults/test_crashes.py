"""Whatever request is the last before a crash, the next operator ends where an undisturbed one would have ended."""

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

SLICE = 2
"""At how many requests of an event a crash is tried in every run of the tests."""
IGNORED = ("POST events", "PATCH events/*")
"""Written beside the reconciles, at random times."""


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[PlaneCrashScenario]:
    """An operator of some namespaces; the administrator's list lets Coder into the others."""
    async with crash_scenario(cluster, operator_kubeconfig, postgres, namespace, everywhere=False) as scenario:
        yield scenario


@pytest.fixture
async def whole_scenario(
    fresh_cluster: Cluster, postgres: Postgres, tmp_path: Path
) -> AsyncIterator[PlaneCrashScenario]:
    """An operator of a whole cluster with the Gateway API; the other namespaces agree by their label."""
    install_crds(fresh_cluster)
    install_gateway_api(fresh_cluster)
    fresh_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "home"}})
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    async with crash_scenario(fresh_cluster, kubeconfig, postgres, "home", everywhere=True) as scenario:
        yield scenario


@pytest.mark.parametrize("event", ["life", "exposure", "token moved", "access given"])
async def test_some_crashes_are_survived(scenario: PlaneCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], SLICE)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_every_crash_is_survived(whole_scenario: PlaneCrashScenario, event: str) -> None:
    print(f"{event}: {await crash_everywhere(whole_scenario, EVENTS[event])} crashes")  # noqa: T201


@pytest.fixture
async def injector(
    scenario: PlaneCrashScenario, cluster: ClusterAccess, operator_kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[CrashInjector]:
    watched, allowed = ",".join(scenario.demo.watched), f"{scenario.demo.namespace}-*"
    flags = (f"--watch-namespaces={watched}", f"--allow-workspace-namespaces={allowed}")
    async with CrashInjector(cluster, operator_kubeconfig, tmp_path, scenario.routes, IGNORED, *flags).ready() as made:
        yield made


async def test_sigkill_is_survived(scenario: PlaneCrashScenario, injector: CrashInjector) -> None:
    assert await kill_everywhere(scenario, injector, EVENTS["token moved"], most=1) == 2


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", ["life", "token moved", "license"])
async def test_sigkill_after_every_request_is_survived(
    scenario: PlaneCrashScenario, injector: CrashInjector, event: str
) -> None:
    print(f"{event}: {await kill_everywhere(scenario, injector, EVENTS[event])} kills")  # noqa: T201
