"""The client of the health check."""

import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.health import HealthMessage
from coder_k8s.dev.coderd_server import CoderdServer, User

TOKEN = "Q2w3E4r5T6-abcdefghijklmnopqrstuv"


@asynccontextmanager
async def responding(status: int, body: Any) -> AsyncIterator[Client]:
    """A client of a server that always sends the same response."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def respond(_: web.Request) -> web.Response:
        return web.Response(status=status, body=content)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Connections() as connections:
            yield Client(connections, f"http://127.0.0.1:{runner.addresses[0][1]}", TOKEN)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("version", ["2.30.0", "2.36.1", "agpl"])
async def test_recorded_reports(version: str) -> None:
    async with CoderdServer(version) as coderd, Connections() as connections:
        client = Client(connections, coderd.url, coderd.state.token)
        report = await client.health()
        assert (report.severity, report.coder_version) == ("error", coderd.state.build_version)
        assert report.provisioner_daemons is not None
        [found] = report.provisioner_daemons.read_warnings()
        assert getattr(found, "code", "") == "EPD01"
        assert report.derp is not None
        assert [*report.derp.read_regions()] == ["999"]
        assert (await client.health_settings()).dismissed_healthchecks == []
        member = Client(connections, coderd.url, coderd.state.add_token(User("member")))
        for call in (member.health, member.health_settings):
            with pytest.raises(errors.Forbidden):
                await call()


async def test_a_large_report() -> None:
    """Hundreds of daemons and relays with their logs."""
    logs = {"client_logs": [["x" * 1000] * 100] * 10}
    regions = {str(number): {"severity": "ok", "node_reports": [logs]} for number in range(9)}
    database = {"severity": "warning", "warnings": [{"code": "EDB02"}]}
    body = {"time": "now", "derp": {"regions": regions}, "odd": {"deep": [[[{}]]]}, "database": database}
    assert len(json.dumps(body)) > 8 * 1024 * 1024
    async with responding(200, body) as client:
        report = await client.health()
    assert report.time == "now"
    assert report.database is not None
    assert report.database.read_warnings() == [HealthMessage("EDB02")]


async def test_millions_of_entries_need_no_more_memory_than_the_report() -> None:
    empty = b"[" + b"{}," * 3_000_000 + b"{}]"
    body = b'{"access_url":{"severity":"error","warnings":' + empty + b'},"derp":{"severity":"error","regions":{"1":'
    async with responding(200, body[:9_000_000] + b"1}}}") as client:
        with pytest.raises(errors.Unavailable):
            await client.health()
    async with responding(200, b'{"access_url":{"severity":"error","warnings":' + empty + b"}}") as client:
        tracemalloc.start()
        report = await client.health()
        assert report.access_url is not None
        assert report.access_url.read_warnings() == []
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024


async def test_a_check_that_does_not_finish() -> None:
    body = {"message": "Healthcheck timed out.", "detail": "Still running: DERP"}
    async with responding(503, body) as client:
        with pytest.raises(errors.TimedOut, match="Healthcheck timed out: Still running: DERP"):
            await client.health()
    old = {"message": "Healthcheck is in progress and did not complete in time. Try again in a few seconds."}
    async with responding(404, old) as client:
        with pytest.raises(errors.TimedOut):
            await client.health()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, {"message": "Route not found."}, errors.NotSupported),
        (403, {"message": "Forbidden."}, errors.Forbidden),
        (503, b"<html>no upstream</html>", errors.Unavailable),
        (500, {"message": "x"}, errors.Unavailable),
        (200, b"OK", errors.Unavailable),
        (200, b"[" * 100_000, errors.Unavailable),
        (200, {"access_url": {"error": []}}, errors.Unavailable),
        (200, b'"\xff"', errors.Unavailable),
    ],
)
async def test_other_responses(status: int, body: Any, error: type[errors.CoderdError]) -> None:
    async with responding(status, body) as client:
        with pytest.raises(error) as raised:
            await client.health()
    assert TOKEN not in str(raised.value)


async def test_the_token_is_not_in_the_report() -> None:
    """coderd sends the caller's token with the requests of its check, and an error may quote it."""
    async with responding(200, {"websocket": {"error": f"EWS02: header {TOKEN} rejected"}}) as client:
        report = await client.health()
    assert report.websocket is not None
    assert report.websocket.error == "EWS02: header [redacted] rejected"
