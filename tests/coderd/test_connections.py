"""Failed requests, limits, `--coderd-connect-to`, and secrets in errors."""

import asyncio
import gzip
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections, Endpoint, Limits, parse_connect_to
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.processes import free_port

TOKEN = "0123456789-s3cr3ts3cr3ts3cr3t0000"
KEY = "k3yk3yk3yk3yk3yk3yk3yk3yk3yk3yk3yk3yk3yk3y0"


class Scripted(asyncio.Protocol):
    """Responds to a request with the given bytes, then closes the connection or hangs."""

    def __init__(self, response: bytes, hang: bool, requests: list[bytes]) -> None:
        self._response = response
        self._hang = hang
        self._requests = requests
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if end and len(body) == int(length[1] if length else 0):
            self._requests.append(head)
            self._transport.write(self._response)
            if not self._hang:
                self._transport.close()


@asynccontextmanager
async def scripted(response: bytes, *, hang: bool = False, requests: list[bytes] | None = None) -> AsyncIterator[str]:
    """Serve the same response for every request; yield the URL."""
    seen = [] if requests is None else requests
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Scripted(response, hang, seen), "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def error_texts(error: BaseException | None) -> str:
    """Return all texts of an error, its cause and its context."""
    if error is None:
        return ""
    return f"{error!r} {error} {vars(error)}" + error_texts(error.__cause__) + error_texts(error.__context__)


async def failing_calls(url: str, limits: Limits | None = None) -> list[errors.CoderdError]:
    """Return the errors of three calls: with a token, with a key in the path, with a license in the body."""
    failures = []
    async with Connections(limits=limits) as connections:
        client = Client(connections, url, TOKEN)
        for call in (client.me, lambda: client.look_up_provisioner_key(KEY), lambda: client.add_license(KEY)):
            with pytest.raises(errors.CoderdError) as caught:
                await call()
            failures.append(caught.value)
    return failures


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (http("200 OK", b"<html>"), "invalid response"),
        (http("200 OK", b'{"id": 5, "name": [], "uuid": 3}'), "invalid response"),
        (http("200 OK", b""), "invalid response"),
        (http("200 OK", b"null"), "invalid response"),
        (http("200 OK", b"\xff\xfe"), "invalid response"),
        (http("404 Not Found", b"<html>nginx</html>"), "HTTP 404 that is not from coderd"),
        (http("401 Unauthorized", b"<html>proxy</html>"), "HTTP 401 that is not from coderd"),
        (http("502 Bad Gateway", b""), "HTTP 502 that is not from coderd"),
        (http("500 Oops", b'{"message": 5}'), "HTTP 500 that is not from coderd"),
        (http("302 Found", b"", "Location: http://elsewhere.invalid/login"), "redirect, which is not followed"),
        (http("307 Temporary Redirect", b"", "Location: /api/v2/other"), "redirect, which is not followed"),
        (http("200 OK", b"x" * 3000), "larger than 2000 bytes"),
        (http("200 OK", gzip.compress(b"x" * 100_000), "Content-Encoding: gzip"), "larger than 2000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "ended in the middle of a response"),
        (b"garbage\r\n\r\n", "not HTTP"),
        (b"", "ended without a response"),
    ],
)
async def test_invalid_responses(response: bytes, message: str) -> None:
    async with scripted(response) as url:
        for error in await failing_calls(url, Limits(body=2000)):
            assert isinstance(error, errors.Unavailable)
            assert re.search(message, str(error))


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
async def test_a_server_that_hangs_times_out(start: bytes) -> None:
    async with scripted(start, hang=True) as url:
        for error in await failing_calls(url, Limits(total=0.2)):
            assert isinstance(error, errors.Unavailable)
            assert "no response within 0.2 s" in str(error)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://coderd.invalid", "ftp://coderd", "coderd", "http://", "http://[::1", ""]
)
async def test_invalid_and_unreachable_urls(url: str) -> None:
    for error in await failing_calls(url):
        assert isinstance(error, errors.Unavailable)


async def test_errors_and_logs_contain_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Neither errors nor logs contain the token or the key."""
    caplog.set_level(logging.DEBUG)
    echo = f'{{"message": "bad {TOKEN} {KEY}", "detail": "{KEY}"}}'.encode()
    responses = [
        http("400 Bad Request", echo),
        http("401 Unauthorized", echo),
        http("500 Oops", echo),
        http("200 OK", echo),
        http("302 Found", b"", f"Location: /{KEY}"),
        b"",
        b"HTTP/1.1 999999 X\r\n\r\n",
    ]
    failures = await failing_calls(f"http://user:{KEY}@127.0.0.1:{free_port()}")
    for response in responses:
        async with scripted(response) as url:
            failures += await failing_calls(url)
    async with scripted(b"", hang=True) as url:
        failures += await failing_calls(url, Limits(total=0.1))
    for text in (caplog.text, *(error_texts(error) for error in failures)):
        assert TOKEN not in text
        assert "s3cr3t" not in text
    for text in (caplog.text, *(error_texts(error) for number, error in enumerate(failures) if number % 3)):
        assert KEY not in text  # the first of three calls has no key to redact
    async with Connections() as connections:
        client = Client(connections, "http://coderd", TOKEN)
        assert TOKEN not in repr(client)


async def test_a_response_that_is_not_from_coderd_is_an_error() -> None:
    """A proxy that responds 200 to every request has deleted nothing."""
    async with scripted(http("200 OK", b"<html>welcome</html>")) as url, Connections() as connections:
        client = Client(connections, url, TOKEN)
        for call in (
            client.delete_provisioner_key("default", "key"),
            client.delete_workspace_proxy("proxy"),
        ):
            with pytest.raises(errors.Unavailable, match="invalid response"):
                await call


async def test_an_interrupted_and_a_slow_connection() -> None:
    async with CoderdServer() as server, Connections(limits=Limits(total=0.3)) as connections:
        client = Client(connections, server.url, server.state.token)
        server.state.set(cut=True)
        with pytest.raises(errors.Unavailable):
            await client.me()
        server.state.set(cut=False, latency=5)
        with pytest.raises(errors.Unavailable, match="no response"):
            await client.me()
        server.state.set(latency=0)
        await client.me()


async def test_servers_that_hang_do_not_block_others() -> None:
    limits = Limits(total=2, connections=2)
    async with scripted(b"", hang=True) as slow, CoderdServer() as server, Connections(limits=limits) as connections:
        hanging = [asyncio.create_task(Client(connections, slow, TOKEN).me()) for _ in range(200)]
        good = Client(connections, server.url, server.state.token)
        async with asyncio.timeout(1):
            await asyncio.gather(*(good.me() for _ in range(20)))
        results = await asyncio.gather(*hanging, return_exceptions=True)
    assert {type(result) for result in results} == {errors.Unavailable}


async def test_connect_to() -> None:
    async with CoderdServer() as server:
        routes = parse_connect_to([f"coder.team.svc.cluster.local:80=127.0.0.1:{server.port}"])
        async with Connections(routes) as connections:
            client = Client(connections, "http://coder.team.svc.cluster.local:80", server.state.token)
            assert (await client.me()).username == "admin"
            other = Client(connections, "http://coder.team.svc.cluster.local:81", server.state.token)
            with pytest.raises(errors.Unavailable):
                await other.me()


async def test_the_host_header_is_kept() -> None:
    requests: list[bytes] = []
    async with scripted(http("200 OK", b'{"version": "v2"}'), requests=requests) as url:
        routes = {Endpoint("coder.example", 8080): Endpoint("localhost", int(url.rpartition(":")[2]))}
        async with Connections(routes) as connections:
            await Client(connections, "http://coder.example:8080/").build_info()
    assert b"Host: coder.example:8080" in requests[0]


@pytest.mark.parametrize(
    "entry", ["", "a:1", "a=b", "a:1=b", "a:1=b:0", "a:1=b:99999", "10.0.0.1:1=b:2", "[::1]:1=b:2"]
)
def test_invalid_connect_to_entries(entry: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|host name"):
        parse_connect_to([entry])


def test_parse_connect_to() -> None:
    assert parse_connect_to(["A.b:80=[::1]:8080", "c:443=localhost:1"]) == {
        ("a.b", 80): ("::1", 8080),
        ("c", 443): ("localhost", 1),
    }
