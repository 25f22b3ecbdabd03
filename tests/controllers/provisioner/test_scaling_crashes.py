"""After a crash at any request of a scale-up or a scale-in, the next operator completes it."""

from itertools import product
from random import Random

import pytest

from tests.support import eventually
from tests.support.crashes import CrashPoint
from tests.support.provisioners import ProvisionerNamespace

from .autoscaled import AutoscaledSite

pytestmark = pytest.mark.slow

FAST = {"scaleDown": {"stabilizationWindowSeconds": 0}}
COST = "controller.kubernetes.io/pod-deletion-cost"
SLICE = 3
PODS = [f"build-{index}" for index in range(3)]


class CrashSite:
    """A provisioner that alternates between one pod and three, with an operator for each step."""

    def __init__(self, place: ProvisionerNamespace) -> None:
        self.place = place
        self.state = place.plane.coderd.state
        self.jobs: list[str] = []

    async def set_up(self) -> None:
        async with self.place.operator() as operator:
            await AutoscaledSite(self.place, operator).make(behavior=FAST)

    async def run(self, expected: int, at: int = 0, *, before: bool = False) -> int:
        """Run operators until the Deployment has this number of replicas; returns the requests of the first one."""
        point = CrashPoint()
        point.crash_at(at, before=before)
        requests = None
        for interceptor in (point, None):
            async with self.place.operator(**({"interceptor": interceptor} if interceptor else {})) as operator:
                site = AutoscaledSite(self.place, operator)
                for _ in range(3):
                    if not operator.crashed:
                        await operator.reconcile(self.place.key)
                    self.place.clock.advance(seconds=11)
            if requests is None:
                requests = len(point.seen)
            if not point.crashed.is_set():
                break
        assert await site.replicas() == expected, f"after a crash at request {at}"
        return requests or 0

    async def up(self, at: int = 0, *, before: bool = False) -> int:
        """Three jobs arrive."""
        self.jobs = [self.state.queue.add_job() for _ in range(3)]
        count = await self.run(3, at, before=before)
        async with self.place.operator() as operator:
            await AutoscaledSite(self.place, operator).add_pods(3)
        return count

    async def down(self, at: int = 0, *, before: bool = False) -> int:
        """All but one end. Its pod is the last one, so that it would be removed without its cost."""
        daemons = {each.name: each.id for each in self.state.daemons.values()}
        running = self.state.acquire_job(daemons["build-2"])
        for job in self.jobs:
            if job != running:
                self.state.queue.finish_job(job)
        count = await self.run(1, at, before=before)
        async with self.place.operator() as operator:
            site = AutoscaledSite(self.place, operator)
            assert (await site.annotations("build-2"))[COST] == "10"
            self.state.queue.finish_job(running)
            await site.remove_pods("build-1", "build-2")
            await site.add_pods(1)
        return count


async def crash_everywhere(place: ProvisionerNamespace, size: int | None) -> int:
    site = CrashSite(place)
    await site.set_up()
    requests = max(await site.up(), await site.down())
    points = list(product(range(1, requests + 1), (True, False)))
    chosen = points if size is None else Random(0).sample(points, size)  # noqa: S311 - the same in every run
    for at, before in chosen:
        await site.up(at, before=before)
        await site.down(at, before=before)
    return 2 * len(chosen)


@pytest.mark.timeout(600)
async def test_a_crash_during_a_change_of_the_number_of_pods(place: ProvisionerNamespace) -> None:
    await crash_everywhere(place, SLICE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("before", [True, False], ids=["before the removal", "after the removal"])
async def test_a_leader_change_during_a_removal(place: ProvisionerNamespace, before: bool) -> None:
    """The next leader decides again: a build that started meanwhile keeps its pod."""
    site = CrashSite(place)
    await site.set_up()
    await site.up()
    daemons = {each.name: each.id for each in site.state.daemons.values()}
    for job in site.jobs:
        site.state.queue.finish_job(job)
    point = CrashPoint()
    point.crash_on(f"PATCH /apis/apps/v1/namespaces/{place.namespace}/deployments/", before=before)
    place.clock.advance(seconds=31)
    async with place.operator(interceptor=point) as operator:
        operator.enqueue(place.key)
        await eventually(point.crashed.is_set)
    started = [site.state.queue.add_job() for _ in range(2)]
    assert [site.state.acquire_job(daemons[name]) for name in ("build-1", "build-2")] == started
    await place.change(autoscaling={"maxReplicas": 10, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}})
    async with place.operator() as operator:
        found = AutoscaledSite(place, operator)
        await operator.reconcile(place.key)
        if not before:  # the number of the last leader; the ReplicaSet controller has not acted on it yet
            assert await found.replicas() >= 2
        for seconds in (11, 11, 11):
            place.clock.advance(seconds=seconds)
            await operator.reconcile(place.key)
            assert await found.replicas() >= (3 if before else 2)
        place.clock.advance(seconds=61)
        await operator.reconcile(place.key)
        assert await found.replicas() == 2
        for name in ("build-1", "build-2"):
            assert (await found.annotations(name))[COST] == "10"
        assert COST not in await found.annotations("build-0")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_every_crash_during_a_change_of_the_number_of_pods(place: ProvisionerNamespace) -> None:
    print(f"{await crash_everywhere(place, None)} crashes")  # noqa: T201
