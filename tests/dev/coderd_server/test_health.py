"""The health report of the simulator."""

from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from coder_k8s.dev.coderd_server import CoderdServer, User

START = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
SLOW = {"code": "EDB02", "message": "median latency is too high"}


async def get(server: CoderdServer, query: str = "", token: str = "") -> tuple[int, dict[str, Any]]:
    headers = {"Coder-Session-Token": token or server.state.token}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{server.url}/api/v2/debug/health{query}") as answer,
    ):
        body: dict[str, Any] = await answer.json()
        return answer.status, body


async def test_a_report_is_kept_for_ten_minutes() -> None:
    clock = [START]
    async with CoderdServer(now=lambda: clock[0]) as server:
        _, first = await get(server)
        assert [each["code"] for each in first["provisioner_daemons"]["warnings"]] == ["EPD01"]
        assert (first["healthy"], first["severity"]) == (False, "error")
        server.state.connect_daemon("built-in-0")
        clock[0] += timedelta(minutes=9)
        assert (await get(server))[1] == first
        clock[0] += timedelta(minutes=1)
        _, second = await get(server)
        assert (second["healthy"], second["severity"]) == (True, "ok")
        assert second["time"] > first["time"]
        [item] = second["provisioner_daemons"]["items"]
        assert item["provisioner_daemon"]["name"] == "built-in-0"
        clock[0] += timedelta(minutes=1)
        assert (await get(server, "?force=true"))[1]["time"] > second["time"]


async def test_sections_that_a_test_sets() -> None:
    async with CoderdServer() as server:
        server.state.connect_daemon("built-in-0")
        health = server.state.health
        health.set_health("database", "warning", [SLOW], latency_ms=20)
        _, report = await get(server)
        assert (report["healthy"], report["severity"]) == (True, "warning")
        assert report["database"]["warnings"] == [SLOW]
        assert (report["database"]["latency_ms"], report["database"]["threshold_ms"]) == (20, 15)
        health.set_health("access_url", "warning")
        assert (await get(server))[1]["healthy"] is False
        health.set_health("access_url")
        health.set_health("websocket", "error", error="EWS01: failed")
        _, report = await get(server)
        assert (report["healthy"], report["websocket"]["error"]) == (False, "EWS01: failed")
        health.dismiss_health(["Websocket", "ProvisionerDaemons"])
        _, report = await get(server)
        assert (report["healthy"], report["websocket"]["dismissed"]) == (False, True)
        assert report["provisioner_daemons"]["dismissed"] is False
        _, settings = await get(server, "/settings")
        assert settings == {"dismissed_healthchecks": ["Websocket", "ProvisionerDaemons"]}
        health.timed_out = "Still running: DERP"
        assert await get(server) == (503, {"message": "Healthcheck timed out.", "detail": "Still running: DERP"})


async def test_only_owners_read_it() -> None:
    async with CoderdServer() as server:
        token = server.state.add_token(User("member"))
        for path in ("", "/settings"):
            status, body = await get(server, path, token)
            assert (status, body["message"]) == (403, "Forbidden.")
