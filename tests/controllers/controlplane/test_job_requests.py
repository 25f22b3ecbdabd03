"""How often coderd is queried for jobs and schedules, and that a steady state causes no writes."""

from collections.abc import AsyncIterator
from datetime import timedelta
from math import ceil
from pathlib import Path

import msgspec
import pytest

from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections, Endpoint
from coder_k8s.controllers.controlplane.jobs.reader import Reader
from coder_k8s.controllers.queries import CoderdQueries
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from tests.support import eventually
from tests.support.clock import Clock
from tests.support.controlplanes import PlaneNamespace, plane_namespace

GPU = {"env": "gpu"}
ORGANIZATIONS = 5
JOBS = "/api/v2/organizations/{organization}/provisionerjobs"
DAEMONS = "/api/v2/organizations/{organization}/provisionerdaemons"
HEALTH = "/api/v2/debug/health"
SETTINGS = "/api/v2/debug/health/settings"


class ManyPlanes(PlaneNamespace):
    """Control planes that share a coderd; each has its own URL, so that they share no answers."""

    names: tuple[str, ...]

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        there = Endpoint("127.0.0.1", self.coderd.port)
        return {Endpoint(f"{name}.{self.namespace}.svc.cluster.local", 80): there for name in self.names}


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        await place.put_secret("given", token=place.coderd.state.token)
        place.coderd.state.connect_daemon("vm-0")
        place.coderd.state.templates.add_template("plain")
        place.coderd.state.templates.add_template("gpu", GPU)
        yield place


async def test_an_idle_hour_causes_no_writes(demo: PlaneNamespace) -> None:
    """Except for the time of the last check of the entitlements, every two minutes."""
    await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.condition("SchedulesServed", "TemplatesWithoutProvisioner", "False")
        await demo.event("SchedulesSkipped")
        await operator.wait_idle()
        before, seen = operator.writes(), await steady_status(demo)
        for _ in range(120):
            await operator.later(seconds=30)
        assert operator.writes() - before == 30
        assert await steady_status(demo) == seen

        demo.coderd.state.queue.add_job(GPU)
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        await demo.event("JobsUnserved")
        await operator.wait_idle()
        before, seen = operator.writes(), await steady_status(demo)
        for _ in range(50):
            await operator.later(seconds=30)
        assert operator.writes() - before <= 13
        assert await steady_status(demo) == seen


async def steady_status(demo: PlaneNamespace) -> bytes:
    status = (await demo.get()).status
    status.entitlements_last_checked = None
    return msgspec.json.encode(status)


async def test_no_requests_if_it_is_turned_off(demo: PlaneNamespace) -> None:
    await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
    demo.coderd.state.queue.add_job(GPU)
    demo.clock.advance(minutes=2)
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        assert "coder_k8s_unserved_jobs{" in operator.metrics()
        await demo.change(health={"interval": "0s"})

        async def removed() -> bool:
            return {"JobsServed", "SchedulesServed"}.isdisjoint(await demo.conditions())

        await eventually(removed)
        await operator.wait_idle()
        sent = demo.coderd.state.count("GET", JOBS)
        for _ in range(10):
            await operator.later(minutes=1)
        assert demo.coderd.state.count("GET", JOBS) == sent
        assert await removed()
        assert (await demo.get()).status.unserved_jobs == []
        assert "coder_k8s_unserved_jobs{" not in operator.metrics()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [4, pytest.param(20, marks=pytest.mark.campaign)])
async def test_requests_of_many_control_planes(demo: PlaneNamespace, number: int) -> None:
    """The numbers are on the pages about health and about jobs that no provisioner can run."""
    state = demo.coderd.state
    many = ManyPlanes(demo.client, demo.kubeconfig, demo.key, demo.coderd, demo.clock)
    many.names = tuple(f"demo-{count}" for count in range(number))
    organizations = [state.organization_id, *(state.add_organization(f"team-{n}") for n in range(1, ORGANIZATIONS))]
    for organization in organizations[1:]:
        state.templates.add_template("plain", organization=organization)
    for name in many.names:
        await many.make(name, operatorAccess={"tokenSecretRef": {"name": "given"}})
    async with many.operator() as operator:
        for name in many.names:
            await many.roll_out(name=name)
        for name in many.names:
            await many.condition("JobsServed", "AllServed", "True", name=name)
        keys = [many.key_of(name) for name in many.names]

        async def per_minute(minutes: int, every: float = 60) -> dict[str, float]:
            """Requests per minute and control plane, by route; at most so many seconds per reconcile."""
            before, until = state.requests.copy(), demo.clock() + timedelta(minutes=minutes)
            while demo.clock() < until:
                due = min(operator.requeue_after(key) or 60 for key in keys)
                demo.clock.advance(seconds=min(ceil(due), every))
                await operator.reconcile(*keys)
            sent = state.requests - before
            return {route: count / number / minutes for (_, route), count in sent.items()}

        found = await per_minute(10)  # two intervals of the health check
        print({route: round(count, 2) for route, count in sorted(found.items())})  # noqa: T201
        assert found[HEALTH] == pytest.approx(1 / 5)
        assert SETTINGS not in found, "Coder reports nothing"
        assert found[JOBS] + found[DAEMONS] <= 2.2 * ORGANIZATIONS
        assert sum(found.values()) <= 2.2 * ORGANIZATIONS + 1.5
        found = await per_minute(1, every=10)
        assert found[JOBS] + found[DAEMONS] <= 2.2 * ORGANIZATIONS, "more reconciles cause no more requests"
        state.health.set_health("database", "warning", [{"code": "EDB02", "message": "slow"}])
        for _ in range(3):  # Coder runs its check every 10 minutes, and two runs are needed
            demo.clock.advance(minutes=10)
            await operator.reconcile(*keys)
        for organization in organizations:
            state.queue.add_job(GPU, organization)
        await per_minute(1)
        for name in many.names:
            await many.condition("JobsServed", "NoMatchingProvisioner", "False", name=name)
            await many.condition("Healthy", "DatabaseSlow", "True", name=name)
        found = await per_minute(5)
        print({route: round(count, 2) for route, count in sorted(found.items())})  # noqa: T201
        assert (found[HEALTH], found[SETTINGS]) == pytest.approx((1 / 5, 1 / 5))
        assert found[JOBS] + found[DAEMONS] <= 4.4 * ORGANIZATIONS
        found = await per_minute(1, every=5)
        assert found[JOBS] + found[DAEMONS] <= Consumer.HEALTH.value


async def test_many_organizations_take_turns() -> None:
    """Beyond the limit, each of them is read less often, and none is left out."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        state = server.state
        for number in range(99):
            state.add_organization(f"team-{number}")
        coderd, queries = Client(connections, server.url, state.token), CoderdQueries(clock)
        reader = Reader(queries)
        for _ in range(30):
            before = sum(state.requests.values())
            for _ in range(6):
                reading = await reader.read(coderd, [])
                clock.advance(seconds=10)
            assert sum(state.requests.values()) - before <= 60
        assert len(reading.queues) == 100
        ages = [queries.jobs_age(coderd, each.organization.id) for each in reading.queues]
        assert max(ages) <= timedelta(minutes=3)
        assert reading.jobs_failure is None
