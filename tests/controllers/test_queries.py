"""coderd gets one request for all objects with the same question."""

import asyncio
from datetime import timedelta

import pytest

from coder_k8s.coderd.client import DAEMON_LIMIT, Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.errors import NotFound, RateLimited, Unavailable
from coder_k8s.controllers.answers import RETRY, UNUSED, Throttled
from coder_k8s.controllers.queries import INTERVAL, CoderdQueries
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.dev.coderd_server import CoderdServer
from tests.support.clock import Clock

DAEMONS = "/api/v2/organizations/{organization}/provisionerdaemons"
ENTITLEMENTS = "/api/v2/entitlements"
JOBS = "/api/v2/organizations/{organization}/provisionerjobs"
KEYS = "/api/v2/organizations/{organization}/provisionerkeys"


async def test_one_request_for_all() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        coderd = Client(connections, server.url, server.state.token)
        queries = CoderdQueries(clock)
        server.state.set(latency=0.05)
        await asyncio.gather(*(queries.keys(coderd, "default") for _ in range(20)))
        assert server.state.count("GET", KEYS) == 1
        server.state.add_key("build")
        clock.advance(seconds=INTERVAL.total_seconds() - 1)
        assert (await queries.keys(coderd, "default")).keys == []
        clock.advance(seconds=1)
        assert [key.name for key in (await queries.keys(coderd, "default")).keys] == ["build"]
        assert server.state.count("GET", KEYS) == 2


async def test_one_request_for_an_organization() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        coderd = Client(connections, server.url, server.state.token)
        queries = CoderdQueries(clock)
        found = [await queries.organization(coderd, "default") for _ in range(3)]
        assert {each.id for each in found} == {(await coderd.organization("default")).id}
        assert server.state.count("GET", "/api/v2/organizations/{organization}") == 2
        with pytest.raises(NotFound):
            await queries.organization(coderd, "absent")


async def test_present() -> None:
    """With `max_age` 0, the answer is newer than the call."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        coderd = Client(connections, server.url, server.state.token)
        queries = CoderdQueries(clock)
        server.state.set(latency=0.1)
        early = asyncio.create_task(queries.keys(coderd, "default"))
        await asyncio.sleep(0)
        late = asyncio.create_task(queries.keys(coderd, "default", timedelta()))
        await early
        server.state.add_key("build")
        assert len((await late).keys) == 1


async def test_failure_is_shared() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        coderd = Client(connections, server.url, server.state.token)
        queries = CoderdQueries(clock)
        server.state.set(latency=0.05, rate_limited=True)
        answers = await asyncio.gather(*(queries.keys(coderd, "default") for _ in range(20)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {RateLimited}
        assert server.state.count("GET", KEYS) == 1
        with pytest.raises(RateLimited):
            await queries.keys(coderd, "default")
        assert server.state.count("GET", KEYS) == 2
        server.state.set(rate_limited=False)
        assert (await queries.keys(coderd, "default")).keys == []


async def test_unused_answers_are_removed() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        queries = CoderdQueries(clock)
        for _ in range(50):
            token = server.state.add_token(server.state.owner)
            await queries.keys(Client(connections, server.url, token), "default")
            clock.advance(seconds=INTERVAL.total_seconds())
        assert len(queries._answers) <= UNUSED / INTERVAL + 1


async def test_users_do_not_share_answers() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        queries = CoderdQueries(clock)
        await queries.keys(Client(connections, server.url, server.state.token), "default")
        other = server.state.add_token(server.state.owner)
        await queries.keys(Client(connections, server.url, other), "default")
        assert server.state.count("GET", KEYS) == 2


async def test_offline_daemons_do_not_hide_connected_ones() -> None:
    """coderd limits the list, and keeps offline daemons for days."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        server.state.install_license()
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)
        server.state.add_key("build")
        for number in range(DAEMON_LIMIT - 1):
            server.state.connect_daemon(f"old-{number}", "build", "offline")
        assert len(await queries.daemons(coderd, "default")) == DAEMON_LIMIT - 1
        assert server.state.count("GET", DAEMONS) == 1

        present = {"build-0": "idle", "build-1": "busy", "build-2": "idle"}
        for name, status in present.items():
            server.state.connect_daemon(name, "build", status)
        clock.advance(seconds=INTERVAL.total_seconds())
        found = await queries.daemons(coderd, "default")
        assert {daemon.name: daemon.status for daemon in found if daemon.status != "offline"} == present
        assert server.state.count("GET", DAEMONS) == 3


async def test_entitlements_are_queried_every_two_minutes() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)
        await asyncio.gather(*(queries.entitlements(coderd) for _ in range(20)))
        clock.advance(seconds=100)
        assert not (await queries.entitlements(coderd)).has_license
        assert queries.entitlements_left(coderd) == 20
        assert server.state.count("GET", ENTITLEMENTS) == 1
        server.state.install_license()
        clock.advance(seconds=20)
        assert (await queries.entitlements(coderd)).has_license
        assert server.state.count("GET", ENTITLEMENTS) == 2


@pytest.mark.parametrize(("switch", "seconds"), [("failing", RETRY), ("rate_limited", 60)])
async def test_failed_entitlements_query_is_not_repeated_at_once(switch: str, seconds: float) -> None:
    """For 30 seconds, or for `Retry-After`."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)
        server.state.set(**{switch: True})
        for wait in (0, seconds - 1):
            clock.advance(seconds=wait)
            with pytest.raises(Unavailable):
                await queries.entitlements(coderd)
        assert server.state.count("GET", ENTITLEMENTS) == 1
        server.state.set(**{switch: False})
        clock.advance(seconds=1)
        await queries.entitlements(coderd)
        assert server.state.count("GET", ENTITLEMENTS) == 2


async def test_jobs_are_read_more_often_while_there_are_any() -> None:
    """One request per interval, however many consumers there are."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)

        async def read() -> tuple[int, int]:
            """The number of jobs and of requests, for many consumers at once."""
            found = await asyncio.gather(*(queries.jobs(coderd, "default", consumer=each) for each in 10 * [*Consumer]))
            return len(found[0]), server.state.count("GET", JOBS)

        assert await read() == (0, 1)
        add_job(server)
        clock.advance(seconds=29)
        assert await read() == (0, 1)
        clock.advance(seconds=1)
        assert await read() == (1, 2)
        clock.advance(seconds=9)
        assert await read() == (1, 2)
        clock.advance(seconds=1)
        assert await read() == (1, 3)
        assert queries.jobs_age(coderd, "default") == timedelta()


async def test_limit_of_requests() -> None:
    """Beyond it, answers get older: there are no more requests and no errors."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)
        for number in range(300):
            await queries.jobs(coderd, "default", timedelta(), Consumer.HEALTH)
            await queries.daemons(coderd, "default", timedelta(), Consumer.HEALTH)
            clock.advance(seconds=0.1)
            assert (queries.wait(coderd, Consumer.HEALTH) > 0) == (number >= 29)
        assert server.state.count("GET", JOBS) + server.state.count("GET", DAEMONS) == 60
        assert queries.jobs_age(coderd, "default") > timedelta(seconds=20)
        with pytest.raises(Throttled):
            await queries.organizations(coderd)
        await queries.jobs(coderd, "default", timedelta())
        assert queries.jobs_age(coderd, "default") == timedelta(), "autoscaling has a limit of its own"
        await queries.daemons(coderd, "default", timedelta())
        assert server.state.count("GET", DAEMONS) == 31, "a change depends on this answer"


async def test_the_limit_is_that_of_the_server() -> None:
    """Whatever the number of tokens is: users choose those of their provisioners."""
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        queries = CoderdQueries(clock)
        for number in range(150):
            coderd = Client(connections, server.url, server.state.add_token(server.state.owner))
            if number < Consumer.AUTOSCALING.value:
                await queries.jobs(coderd, "default")
            else:
                with pytest.raises(Throttled):
                    await queries.jobs(coderd, "default")
        assert server.state.count("GET", JOBS) == Consumer.AUTOSCALING.value


async def test_coderd_is_read_less_often_after_errors() -> None:
    clock = Clock()
    async with CoderdServer(now=clock) as server, Connections() as connections:
        coderd, queries = Client(connections, server.url, server.state.token), CoderdQueries(clock)
        server.state.set(failing=True)
        for _ in range(3600):
            with pytest.raises(Unavailable):
                await queries.jobs(coderd, "default")
            clock.advance(seconds=1)
        assert 12 < server.state.count("GET", JOBS) < 35


def add_job(server: CoderdServer) -> None:
    server.state.queue.add_job()
