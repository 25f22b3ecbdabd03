"""Exchanges that fail, limits, detours, and that no secret gets out."""

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
    """Answers a complete request with given bytes, and then hangs if it should."""

    def __init__(self, answer: bytes, hang: bool, requests: list[bytes]) -> None:
        self._answer = answer
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
            self._transport.write(self._answer)
            if not self._hang:
                self._transport.close()


@asynccontextmanager
async def scripted(answer: bytes, *, hang: bool = False, requests: list[bytes] | None = None) -> AsyncIterator[str]:
    """The URL of a server that answers every request with these bytes."""
    seen = [] if requests is None else requests
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Scripted(answer, hang, seen), "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def everything(error: BaseException | None) -> str:
    """All that an error and those behind it hold."""
    if error is None:
        return ""
    return f"{error!r} {error} {vars(error)}" + everything(error.__cause__) + everything(error.__context__)


async def calls(url: str, limits: Limits | None = None) -> list[errors.CoderdError]:
    """What a call with a token, and one with a key in its path, fail with."""
    failures = []
    async with Connections(limits=limits) as connections:
        client = Client(connections, url, TOKEN)
        for call in (client.me, lambda: client.look_up_provisioner_key(KEY), lambda: client.add_license(KEY)):
            with pytest.raises(errors.CoderdError) as caught:
                await call()
            failures.append(caught.value)
    return failures


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http("200 OK", b"<html>"), "cannot be read"),
        (http("200 OK", b'{"id": 5, "name": [], "uuid": 3}'), "cannot be read"),
        (http("200 OK", b""), "cannot be read"),
        (http("200 OK", b"null"), "cannot be read"),
        (http("200 OK", b"\xff\xfe"), "cannot be read"),
        (http("404 Not Found", b"<html>nginx</html>"), "HTTP 404 that is not from coderd"),
        (http("401 Unauthorized", b"<html>proxy</html>"), "HTTP 401 that is not from coderd"),
        (http("502 Bad Gateway", b""), "HTTP 502 that is not from coderd"),
        (http("500 Oops", b'{"message": 5}'), "HTTP 500 that is not from coderd"),
        (http("302 Found", b"", "Location: http://elsewhere.invalid/login"), "redirect, which is not followed"),
        (http("307 Temporary Redirect", b"", "Location: /api/v2/other"), "redirect, which is not followed"),
        (http("200 OK", b"x" * 3000), "larger than 2000 bytes"),
        (http("200 OK", gzip.compress(b"x" * 100_000), "Content-Encoding: gzip"), "larger than 2000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "ClientPayloadError"),
        (b"garbage\r\n\r\n", "ClientResponseError|ServerDisconnectedError"),
        (b"", "ServerDisconnectedError"),
    ],
)
async def test_an_answer_that_is_no_use(answer: bytes, said: str) -> None:
    async with scripted(answer) as url:
        for error in await calls(url, Limits(body=2000)):
            assert isinstance(error, errors.Unavailable)
            assert re.search(said, str(error))


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
async def test_a_server_that_hangs_is_given_up(start: bytes) -> None:
    async with scripted(start, hang=True) as url:
        for error in await calls(url, Limits(total=0.2)):
            assert isinstance(error, errors.Unavailable)
            assert "no answer within 0.2 s" in str(error)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://coderd.invalid", "ftp://coderd", "coderd", "http://", "http://[::1", ""]
)
async def test_a_url_that_leads_nowhere(url: str) -> None:
    for error in await calls(url):
        assert isinstance(error, errors.Unavailable)


async def test_no_secret_gets_out(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever happens, neither errors nor logs hold the token or the key."""
    caplog.set_level(logging.DEBUG)
    echo = f'{{"message": "bad {TOKEN} {KEY}", "detail": "{KEY}"}}'.encode()
    answers = [
        http("400 Bad Request", echo),
        http("401 Unauthorized", echo),
        http("500 Oops", echo),
        http("200 OK", echo),
        http("302 Found", b"", f"Location: /{KEY}"),
        b"",
        b"HTTP/1.1 999999 X\r\n\r\n",
    ]
    failures = await calls(f"http://user:{KEY}@127.0.0.1:{free_port()}")
    for answer in answers:
        async with scripted(answer) as url:
            failures += await calls(url)
    async with scripted(b"", hang=True) as url:
        failures += await calls(url, Limits(total=0.1))
    for text in (caplog.text, *(everything(error) for error in failures)):
        assert TOKEN not in text
        assert "s3cr3t" not in text
    for text in (caplog.text, *(everything(error) for number, error in enumerate(failures) if number % 3)):
        assert KEY not in text  # the first of three calls knows no key, so it cannot recognise one
    async with Connections() as connections:
        client = Client(connections, "http://coderd", TOKEN)
        assert TOKEN not in repr(client)


async def test_what_somebody_else_answers_was_not_done() -> None:
    """A page that says OK to everything has deleted nothing."""
    async with scripted(http("200 OK", b"<html>welcome</html>")) as url, Connections() as connections:
        client = Client(connections, url, TOKEN)
        for call in (
            client.delete_provisioner_key("default", "key"),
            client.delete_workspace_proxy("proxy"),
        ):
            with pytest.raises(errors.Unavailable, match="cannot be read"):
                await call


async def test_a_connection_that_is_cut_and_one_that_is_slow() -> None:
    async with CoderdServer() as server, Connections(limits=Limits(total=0.3)) as connections:
        client = Client(connections, server.url, server.state.token)
        server.state.set(cut=True)
        with pytest.raises(errors.Unavailable):
            await client.me()
        server.state.set(cut=False, latency=5)
        with pytest.raises(errors.Unavailable, match="no answer"):
            await client.me()
        server.state.set(latency=0)
        await client.me()


async def test_servers_that_hang_do_not_hold_up_the_others() -> None:
    limits = Limits(total=2, connections=2)
    async with scripted(b"", hang=True) as slow, CoderdServer() as server, Connections(limits=limits) as connections:
        stuck = [asyncio.create_task(Client(connections, slow, TOKEN).me()) for _ in range(200)]
        good = Client(connections, server.url, server.state.token)
        async with asyncio.timeout(1):
            await asyncio.gather(*(good.me() for _ in range(20)))
        results = await asyncio.gather(*stuck, return_exceptions=True)
    assert {type(result) for result in results} == {errors.Unavailable}


async def test_a_name_is_connected_to_elsewhere() -> None:
    async with CoderdServer() as server:
        routes = parse_connect_to([f"coder.team.svc.cluster.local:80=127.0.0.1:{server.port}"])
        async with Connections(routes) as connections:
            client = Client(connections, "http://coder.team.svc.cluster.local:80", server.state.token)
            assert (await client.me()).username == "admin"
            other = Client(connections, "http://coder.team.svc.cluster.local:81", server.state.token)
            with pytest.raises(errors.Unavailable):
                await other.me()


async def test_the_host_header_stays() -> None:
    requests: list[bytes] = []
    async with scripted(http("200 OK", b'{"version": "v2"}'), requests=requests) as url:
        routes = {Endpoint("coder.example", 8080): Endpoint("localhost", int(url.rpartition(":")[2]))}
        async with Connections(routes) as connections:
            await Client(connections, "http://coder.example:8080/").build_info()
    assert b"Host: coder.example:8080" in requests[0]


@pytest.mark.parametrize(
    "entry", ["", "a:1", "a=b", "a:1=b", "a:1=b:0", "a:1=b:99999", "10.0.0.1:1=b:2", "[::1]:1=b:2"]
)
def test_a_detour_that_is_none(entry: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|host name"):
        parse_connect_to([entry])


def test_detours() -> None:
    assert parse_connect_to(["A.b:80=[::1]:8080", "c:443=localhost:1"]) == {
        ("a.b", 80): ("::1", 8080),
        ("c", 443): ("localhost", 1),
    }
