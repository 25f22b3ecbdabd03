"""Whatever request an operator dies at, the next one finishes the work: no proxy is lost, none is left behind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.drills import crash_everywhere, execute_everywhere
from tests.support.executions import BESIDE, CrashInjector

from .drill import EVENTS, ProxyDrill, drilling
from .world import World

SLICES = {"life": None, "names": 3, "moved to a control plane": 3}
"""At how many requests of an event a crash is tried in every run of the tests, or at all."""


@pytest.fixture
async def drill(place: World) -> AsyncIterator[ProxyDrill]:
    async with drilling(place) as drill:
        yield drill


@pytest.mark.parametrize("event", SLICES)
async def test_some_crashes_are_survived(drill: ProxyDrill, event: str) -> None:
    assert await crash_everywhere(drill, EVENTS[event], SLICES[event])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_every_crash_is_survived(drill: ProxyDrill, event: str) -> None:
    print(f"{event}: {await crash_everywhere(drill, EVENTS[event])} crashes")  # noqa: T201


@pytest.fixture
async def executioner(drill: ProxyDrill, cluster: ClusterAccess, tmp_path: Path) -> AsyncIterator[CrashInjector]:
    ground, watched = drill.ground, f"--watch-namespaces={drill.ground.key.namespace}"
    beside = (*BESIDE, "POST events")
    async with CrashInjector(cluster, ground.kubeconfig, tmp_path, ground.routes, beside, watched).ready() as made:
        yield made


async def test_sigkill_is_survived(drill: ProxyDrill, executioner: CrashInjector) -> None:
    assert await execute_everywhere(drill, executioner, EVENTS["life"], most=1) == 2


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", ["life", "moved to a control plane"])
async def test_sigkill_after_every_request_is_survived(
    drill: ProxyDrill, executioner: CrashInjector, event: str
) -> None:
    print(f"{event}: {await execute_everywhere(drill, executioner, EVENTS[event])} kills")  # noqa: T201
