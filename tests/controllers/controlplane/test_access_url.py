"""`CODER_ACCESS_URL`: injected, unless a source of the environment defines it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET
from tests.support.idle import one_more_pass

from .recorded_plane import RecordedPlane, access_url, recorded_plane


@pytest.fixture
async def world(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RecordedPlane]:
    async with recorded_plane(cluster.kubeconfig, operator_kubeconfig, namespace) as world:
        yield world


async def test_access_url_is_injected_while_no_source_defines_it(world: RecordedPlane) -> None:
    """Through every way in which a source can come to define it, and stop to."""
    own = f"http://demo.{world.namespace}.svc.cluster.local"
    sources = [
        {"configMapRef": {"name": "plain", "optional": True}},
        {"secretRef": {"name": "prefixed", "optional": True}, "prefix": "CODER_"},
        {"secretRef": {"name": "misled", "optional": True}, "prefix": "NOT_"},
    ]
    async with world.running():
        await world.put(SECRET, "misled", CODER_ACCESS_URL="http://elsewhere")
        assert access_url(await world.make(envFrom=sources)) == own

        async def follows(expected: str) -> None:
            await world.deployments.until("demo", lambda live: access_url(live) == expected)

        await world.put(CONFIG_MAP, "plain", CODER_ACCESS_URL="https://coder.example.com")
        await follows("")
        await world.put(CONFIG_MAP, "plain", OTHER="1")
        await follows(own)
        await world.put(SECRET, "prefixed", ACCESS_URL="https://coder.example.com")
        await follows("")
        await world.drop(SECRET, "prefixed")
        await follows(own)


async def test_access_url_of_a_source_that_is_there_from_the_start(world: RecordedPlane) -> None:
    await world.put(SECRET, "it", CODER_ACCESS_URL="https://coder.example.com")
    async with world.running():
        assert access_url(await world.make(envFrom=[{"secretRef": {"name": "it"}}])) == ""


@pytest.mark.parametrize(("content", "injected", "generation"), [("OTHER", True, 1), ("CODER_ACCESS_URL", False, 2)])
async def test_access_url_while_a_source_is_missing(
    world: RecordedPlane, content: str, injected: bool, generation: int
) -> None:
    """A source that appears rolls nothing, unless it says that our guess was wrong."""
    async with world.running() as runtime:
        assert access_url(await world.make(envFrom=[{"secretRef": {"name": "it"}}])) != ""
        async with one_more_pass(runtime):
            await world.put(SECRET, "it", **{content: "https://coder.example.com"})
        assert bool(access_url(world.deployments.of("demo")[-1])) == injected
        assert world.generation == generation


async def test_access_url_of_one_source_counts_while_another_is_missing(world: RecordedPlane) -> None:
    await world.put(CONFIG_MAP, "there", OTHER="1")
    async with world.running():
        await world.make(envFrom=[{"secretRef": {"name": "absent"}}, {"configMapRef": {"name": "there"}}])
        await world.put(CONFIG_MAP, "there", CODER_ACCESS_URL="https://coder.example.com")
        await world.deployments.until("demo", lambda live: access_url(live) == "")
