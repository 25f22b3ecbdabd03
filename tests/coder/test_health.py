"""The health of a real Coder: each problem is reported after two of its runs, and recovers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.controllers import controlplane
from coder_k8s.dev.coder_build import AGPL, LATEST
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.objects import Manifest
from tests.support.clock import SystemClock
from tests.support.forwarding import Forwarder
from tests.support.operators import Operator
from tests.support.real_coder import RealPlane

pytestmark = [pytest.mark.coder(LATEST), pytest.mark.timeout(900)]

SETTLED = ("AllChecksPassed", "STUNUnavailable")
"""Reasons of a Coder that works; without access to the internet, it reaches no STUN server."""
VERSIONS = [LATEST, pytest.param(AGPL, marks=[pytest.mark.coder(AGPL), pytest.mark.campaign])]
INTERVAL = timedelta(minutes=5)


class AdvancingClock(SystemClock):
    """The system time, and what a test adds to it."""

    ahead = timedelta()

    def __call__(self) -> datetime:
        return super().__call__() + self.ahead

    def advance(self, **spans: float) -> None:
        self.ahead += timedelta(**spans)


class WithoutUpgrade(Forwarder):
    """A proxy that does not pass on websockets, as many do by default."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade"):
            return web.Response(status=400, text="Bad Request")
        return await super().handle(request)


def variables(place: RealPlane, url: str, **values: str) -> list[Manifest]:
    """The environment of Coder, which runs its check at every request."""
    own = {"CODER_ACCESS_URL": url, "CODER_HEALTH_CHECK_REFRESH": "1ms", "CODER_PROVISIONER_DAEMONS": "1", **values}
    return [*place.env, *({"name": name, "value": value} for name, value in own.items())]


@asynccontextmanager
async def running(place: RealPlane, version: str = LATEST, **spec: Any) -> AsyncIterator[Operator]:
    """A control plane with one pod, and its operator."""
    place.builders = (controlplane.build,)
    place.clock = AdvancingClock()
    async with place.operator() as operator:
        await place.make(version=version, replicas=1, **spec)
        await place.ready()
        yield operator


async def healthy(place: RealPlane) -> Condition:
    found = find((await place.get()).status.conditions, "Healthy")
    assert found is not None
    return found


async def intervals_until(place: RealPlane, operator: Operator, *reasons: str, limit: int = 6) -> int:
    """How many intervals pass until the condition has one of these reasons."""
    for number in range(limit):
        if (await healthy(place)).reason in reasons:
            return number
        await operator.later(seconds=INTERVAL.total_seconds())
    raise AssertionError(await healthy(place))


async def roll(place: RealPlane, operator: Operator, env: list[Manifest]) -> None:
    """Restart Coder with another environment."""
    await place.change(extraEnv=env)
    await place.ready()
    await operator.wait_idle()


async def test_a_wrong_access_url(real_coder: RealPlane) -> None:
    good = variables(real_coder, real_coder.url)
    async with running(real_coder, extraEnv=variables(real_coder, "http://coder.invalid")) as operator:
        assert await intervals_until(real_coder, operator, "AccessURLUnreachable") <= 2
        found = await healthy(real_coder)
        assert found.status == "False"
        assert found.message.startswith("EACS03: Coder cannot reach its own access URL (")
        assert found.message.endswith("#eacs03")
        await roll(real_coder, operator, good)
        assert await intervals_until(real_coder, operator, *SETTLED) <= 1
        assert (await healthy(real_coder)).status == "True"


async def test_a_proxy_without_websockets(real_coder: RealPlane) -> None:
    async with WithoutUpgrade(real_coder.url) as proxy:
        env = variables(real_coder, f"http://127.0.0.1:{proxy.port}")
        async with running(real_coder, extraEnv=env) as operator:
            assert await intervals_until(real_coder, operator, "WebsocketBlocked") <= 2
            found = await healthy(real_coder)
            assert found.status == "False"
            assert found.message.startswith("EWS0")
            await roll(real_coder, operator, variables(real_coder, real_coder.url))
            assert await intervals_until(real_coder, operator, *SETTLED) <= 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_provisioner_daemon(real_coder: RealPlane, version: str) -> None:
    env = variables(real_coder, real_coder.url, CODER_PROVISIONER_DAEMONS="0")
    async with running(real_coder, version, extraEnv=env) as operator:
        assert await intervals_until(real_coder, operator, "NoProvisioners") <= 2
        assert (await healthy(real_coder)).status == "False"
        status = (await real_coder.get()).status
        assert status.health is not None
        assert (status.health.codes[0], status.health.version) == ("EPD01", status.version)
        await roll(real_coder, operator, variables(real_coder, real_coder.url))
        assert await intervals_until(real_coder, operator, *SETTLED) <= 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_database_that_stops(real_coder: RealPlane, postgres: Postgres, version: str) -> None:
    """Without its database, coderd accepts no token, so that its check cannot be read."""
    async with running(real_coder, version, extraEnv=variables(real_coder, real_coder.url)) as operator:
        assert await intervals_until(real_coder, operator, *SETTLED) <= 1
        postgres.halt()
        try:
            assert await intervals_until(real_coder, operator, "DatabaseDown") <= 2
            found = await healthy(real_coder)
            assert found.status == "Unknown"
        finally:
            postgres.resume()
        assert await intervals_until(real_coder, operator, *SETTLED) <= 2
        assert (await healthy(real_coder)).status == "True"
