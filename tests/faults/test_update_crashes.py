"""The operator crashes before or after a request of an update; the next one completes it, forward and back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.postgres import Postgres
from tests.support.campaign import slice_of
from tests.support.crash_scenarios import crash_everywhere

from .update_crash_scenario import EVENTS, UpdateCrashScenario, update_crash_scenario

pytestmark = pytest.mark.slow


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[UpdateCrashScenario]:
    async with update_crash_scenario(cluster, operator_kubeconfig, postgres, namespace) as found:
        yield found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("event", slice_of(EVENTS, 1, 2))
async def test_crash_at_some_requests(scenario: UpdateCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], 2)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("event", EVENTS)
async def test_crash_at_every_request(scenario: UpdateCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event])
