import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from coder_k8s.kube.addresses import Address, parse_address
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.servers import CannotServe, Server, health_server, metrics_server

FREE_PORT = Address("127.0.0.1", 0)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(server: Server, path: str) -> str:
    return f"http://{server.address}{path}"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", Address(None, 8081)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:80", Address("localhost", 80)),
        ("[::]:8081", Address("::", 8081)),
        ("[::1]:65535", Address("::1", 65535)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    if address is not None:
        assert str(address) == text


@pytest.mark.parametrize("text", ["8081", "::8081", ":http", ":65536", ":-1", "[::1]", "host:", "::1:80"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a listen address"):
        parse_address(text)


async def test_health_fails_with_a_check(session: aiohttp.ClientSession) -> None:
    errors = {"watch": "", "cache": ""}
    checks = {"watch": lambda: errors["watch"], "cache": lambda: errors["cache"]}
    async with health_server(FREE_PORT, checks, checks) as server:
        for path in ("/healthz", "/readyz"):
            async with session.get(url(server, path)) as response:
                assert (response.status, await response.text()) == (200, "ok\n")
            async with session.get(url(server, path + "?verbose")) as response:
                assert await response.text() == "[+] watch: ok\n[+] cache: ok\nok\n"
        errors["cache"] = "not synced"
        for path, status in (("/healthz", 500), ("/readyz", 503)):
            async with session.get(url(server, path)) as response:
                assert response.status == status
                assert await response.text() == "[+] watch: ok\n[-] cache: not synced\nfailed\n"


async def test_probes_time_out_while_the_event_loop_is_blocked() -> None:
    async with health_server(FREE_PORT, {}, {}) as server:
        host, port = server.address
        probed = threading.Event()
        responses: list[bytes] = []

        def probe() -> None:
            with socket.create_connection((host or "", port), timeout=0.3) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                try:
                    responses.append(connection.recv(100))
                except TimeoutError:
                    responses.append(b"")
            probed.set()

        healthy = threading.Thread(target=probe)
        healthy.start()
        await asyncio.to_thread(probed.wait, 5)
        probed.clear()
        blocked = threading.Thread(target=probe)
        blocked.start()
        while not probed.is_set():
            time.sleep(0.01)  # noqa: ASYNC251 - blocks the event loop
        healthy.join()
        blocked.join()
    assert responses[0].startswith(b"HTTP/1.1 200")
    assert responses[1] == b""


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
async def test_metrics(session: aiohttp.ClientSession, accept: str) -> None:
    metrics = Metrics()
    age = 1.0
    metrics.watch_age.labels("configmaps").set_function(lambda: age)
    async with metrics_server(FREE_PORT, metrics.registry) as server:
        for age in (2.0, 3.0):
            async with session.get(url(server, "/metrics"), headers={"Accept": accept}) as response:
                assert response.status == 200
                assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                families = {family.name: family for family in parse_text(await response.text())}
            (sample,) = families["coder_k8s_watch_age_seconds"].samples
            assert sample.value == age, "computed on each scrape"


async def test_a_host_name_that_is_not_valid() -> None:
    with pytest.raises(CannotServe, match=r"^cannot serve health on a\.\.b:80: the host name is not valid$"):
        async with health_server(Address("a..b", 80), {}, {}):
            pass


async def test_a_port_in_use() -> None:
    async with health_server(FREE_PORT, {}, {}) as first:
        with pytest.raises(CannotServe, match=rf"^cannot serve health on {first.address}: .*in use"):
            async with health_server(first.address, {}, {}):
                pass


async def test_nothing_is_served_after_exit(session: aiohttp.ClientSession) -> None:
    async with health_server(FREE_PORT, {}, {}) as server:
        pass
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(url(server, "/healthz"))
