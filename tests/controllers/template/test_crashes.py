"""After a crash at any request, the next operator completes the work, and no content is imported twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.crash_injector import IGNORED, CrashInjector
from tests.support.crash_scenarios import crash_everywhere, kill_everywhere
from tests.support.templates import TemplateNamespace

from .crash_scenario import EVENTS, TemplateCrashScenario

SLICES = {"life": 4, "content": 2}
"""Number of requests per event at which a crash is tested in every run."""


@pytest.fixture
async def scenario(place: TemplateNamespace) -> TemplateCrashScenario:
    made = TemplateCrashScenario(place)
    await made.prepare()
    return made


@pytest.mark.timeout(600)  # operators that start, crash and start again
@pytest.mark.parametrize("event", SLICES)
async def test_some_crashes_are_survived(scenario: TemplateCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], SLICES[event])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_every_crash_is_survived(scenario: TemplateCrashScenario, event: str) -> None:
    print(f"{event}: {await crash_everywhere(scenario, EVENTS[event])} crashes")  # noqa: T201


@pytest.fixture
async def injector(
    scenario: TemplateCrashScenario, cluster: ClusterAccess, tmp_path: Path
) -> AsyncIterator[CrashInjector]:
    watched, ignored = f"--watch-namespaces={scenario.place.namespace}", (*IGNORED, "POST events")
    kubeconfig = scenario.place.kubeconfig
    async with CrashInjector(cluster, kubeconfig, tmp_path, scenario.routes, ignored, watched).ready() as made:
        yield made


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", ["life", "content"])
async def test_sigkill_after_every_request_is_survived(
    scenario: TemplateCrashScenario, injector: CrashInjector, event: str
) -> None:
    print(f"{event}: {await kill_everywhere(scenario, injector, EVENTS[event])} kills")  # noqa: T201
