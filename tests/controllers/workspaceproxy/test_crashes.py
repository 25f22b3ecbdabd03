"""After a crash at any request, the next operator completes the work: no proxy is lost or left behind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.crash_injector import IGNORED, CrashInjector
from tests.support.crash_scenarios import crash_everywhere, kill_everywhere
from tests.support.workspaceproxies import ProxyNamespace

from .crash_scenario import EVENTS, ProxyCrashScenario, crash_scenario

pytestmark = pytest.mark.slow

SLICES = {"life": 3, "names": 2, "moved to a control plane": 2}
"""Number of crash points per event outside of the campaign."""


@pytest.fixture
async def scenario(place: ProxyNamespace) -> AsyncIterator[ProxyCrashScenario]:
    async with crash_scenario(place) as scenario:
        yield scenario


@pytest.mark.timeout(600)
@pytest.mark.parametrize("event", SLICES)
async def test_some_crashes_are_survived(scenario: ProxyCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], SLICES[event])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_every_crash_is_survived(scenario: ProxyCrashScenario, event: str) -> None:
    print(f"{event}: {await crash_everywhere(scenario, EVENTS[event])} crashes")  # noqa: T201


@pytest.fixture
async def injector(
    scenario: ProxyCrashScenario, cluster: ClusterAccess, tmp_path: Path
) -> AsyncIterator[CrashInjector]:
    watched, ignored = f"--watch-namespaces={scenario.place.namespace}", (*IGNORED, "POST events")
    kubeconfig = scenario.place.kubeconfig
    async with CrashInjector(cluster, kubeconfig, tmp_path, scenario.routes, ignored, watched).ready() as made:
        yield made


async def test_sigkill_is_survived(scenario: ProxyCrashScenario, injector: CrashInjector) -> None:
    assert await kill_everywhere(scenario, injector, EVENTS["life"], most=1) == 2


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", ["life", "moved to a control plane"])
async def test_sigkill_after_every_request_is_survived(
    scenario: ProxyCrashScenario, injector: CrashInjector, event: str
) -> None:
    print(f"{event}: {await kill_everywhere(scenario, injector, EVENTS[event])} kills")  # noqa: T201
