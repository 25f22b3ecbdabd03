"""The client against a server on a real socket: connections, limits, timeouts, TLS and proxies."""

import asyncio
import gc
import socket
import ssl
import tracemalloc
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coder_k8s.dev.certificates import Authority
from coder_k8s.dev.processes import free_port
from coder_k8s.http import connecting
from coder_k8s.http import pool as pools
from coder_k8s.http.connecting import Endpoint, Proxy, Route
from coder_k8s.http.connection import HIGH_WATER, Connection
from coder_k8s.http.errors import (
    CannotConnect,
    Disconnected,
    IdleTimeout,
    InvalidURL,
    ProxyRefused,
    ResponseTimeout,
    TooLarge,
)
from coder_k8s.http.pool import Pool, Request, encode_headers
from coder_k8s.http.urls import Origin, parse_url
from tests.support import eventually

from .scripted import Handler, Scripted, hang, raw, reply

GET = Request("GET", "/x", b"Accept: text/plain\r\n")
SECONDS = 20.0


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool(connect_timeout=5) as pool:
        yield pool


def route(server: Scripted, host: str = "127.0.0.1") -> Route:
    return Route(Origin("http", host, server.port))


async def test_a_connection_is_used_again(pool: Pool) -> None:
    async with Scripted(reply(b"first", "X-Some: One"), reply(b"second", status="404 Not Found")) as server:
        first = await pool.exchange(route(server), GET, SECONDS)
        second = await pool.exchange(route(server), Request("PUT", "/y?a=b", b"", b"body"), SECONDS)
    assert (first.status, first.body, first.headers["x-some"]) == (200, b"first", "One")
    assert (second.status, second.body) == (404, b"second")
    assert server.connections == 1
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    assert server.heads[0] == b"GET /x HTTP/1.1\r\n" + host + b"Accept: text/plain\r\n\r\n"
    assert server.heads[1] == b"PUT /y?a=b HTTP/1.1\r\n" + host + b"Content-Length: 4\r\n\r\n"
    assert server.bodies == [b"", b"body"]


async def test_a_large_response(pool: Pool) -> None:
    """It is larger than what a connection buffers for a slow reader."""
    body = b"x" * (HIGH_WATER * 5)
    async with Scripted(reply(body), reply(b"second"), reply(body)) as server:
        assert (await pool.exchange(route(server), GET, SECONDS)).body == body
        assert (await pool.exchange(route(server), GET, SECONDS)).body == b"second"
        with pytest.raises(TooLarge):
            await pool.exchange(route(server), GET, SECONDS, HIGH_WATER * 3)


async def test_a_connection_that_the_server_closed_is_not_used_again(pool: Pool) -> None:
    async with Scripted(reply()) as server:
        await pool.exchange(route(server), GET, SECONDS)
        server.disconnect()
        await eventually(lambda: not pool.open_connections)
        await pool.exchange(route(server), GET, SECONDS)
        assert server.connections == 2


async def test_an_idle_connection_is_closed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE", 0.05)
    async with Scripted(reply()) as server:
        await pool.exchange(route(server), GET, SECONDS)
        await eventually(lambda: not server.open)


async def test_no_request_is_sent_twice(pool: Pool) -> None:
    async with Scripted(reply(), raw(close=True), reply()) as server:
        await pool.exchange(route(server), GET, SECONDS)
        with pytest.raises(Disconnected, match="without a response"):
            await pool.exchange(route(server), Request("DELETE", "/x", b""), SECONDS)
        assert len(server.heads) == 2


async def test_the_check_runs_before_the_request_is_written(pool: Pool) -> None:
    def check() -> None:
        raise PermissionError("not leading")

    async with Scripted(reply()) as server:
        with pytest.raises(PermissionError):
            await pool.exchange(route(server), GET._replace(check=check), SECONDS)
        assert server.heads == []
        await pool.exchange(route(server), GET, SECONDS)


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nb", "a\rb"])
def test_a_header_cannot_contain_another_one(value: str) -> None:
    with pytest.raises(InvalidURL, match="line break"):
        encode_headers({"Authorization": value})


@pytest.mark.parametrize("path", ["/a\r\nX: b", "/ä"])
async def test_a_path_contains_no_header(pool: Pool, path: str) -> None:
    async with Scripted(reply()) as server:
        with pytest.raises(InvalidURL):
            await pool.exchange(route(server), Request("GET", path, b""), SECONDS)
        assert server.heads == []


async def test_a_timeout_closes_the_connection(pool: Pool) -> None:
    async with Scripted(hang, reply()) as server:
        with pytest.raises(TimeoutError):
            await pool.exchange(route(server), GET, 0.2)
        await eventually(lambda: not server.open)
        await pool.exchange(route(server), GET, SECONDS)
        assert server.connections == 2


async def test_connections_are_limited_per_server() -> None:
    async with Scripted(hang) as slow, Scripted(reply()) as fast, Pool(connect_timeout=5, connections=2) as pool:
        waiting = [asyncio.create_task(pool.exchange(route(slow), GET, 0.5)) for _ in range(20)]
        await eventually(lambda: slow.connections == 2)
        await asyncio.gather(*(pool.exchange(route(fast), GET, SECONDS) for _ in range(20)))
        assert fast.connections <= 2
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {TimeoutError, ResponseTimeout}


async def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    release = asyncio.Event()

    async def held(head: bytes, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply()(head, writer)

    async with Scripted(held) as server, Pool(connect_timeout=5, connections=1) as pool:
        first, second, third = (asyncio.create_task(pool.exchange(route(server), GET, SECONDS)) for _ in range(3))
        await eventually(lambda: len(server.heads) == 1)
        second.cancel()
        release.set()
        assert (await first).status == (await third).status == 200
        assert second.cancelled()


async def test_the_limit_applies_after_the_server_closed_connections() -> None:
    most = 0

    async def close_later(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        most = max(most, len(server.open))
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    async with Scripted(close_later) as server, Pool(connect_timeout=5, connections=2) as pool:
        for number in (3, 4, 5, 6):
            await asyncio.gather(*(pool.exchange(route(server), GET, SECONDS) for _ in range(number)))
            await eventually(lambda: not server.open)
    assert most == 2


async def test_a_request_that_waits_is_sent_before_later_ones() -> None:
    async with Scripted(reply()) as server, Pool(connect_timeout=5, connections=1) as pool:
        finished = 0

        async def repeat() -> None:
            nonlocal finished
            while True:
                await pool.exchange(route(server), GET, SECONDS)
                finished += 1

        repeating = asyncio.create_task(repeat())
        await eventually(lambda: finished)
        before = finished
        await pool.exchange(route(server), GET, SECONDS)
        assert finished - before <= 2
        repeating.cancel()


async def test_a_connection_is_not_used_again_while_a_request_is_being_sent(pool: Pool) -> None:
    class Early(Scripted):
        """Does not read the body of a request."""

        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            self.open.add(writer)
            head = await reader.readuntil(b"\r\n\r\n")
            await reply(status="401 Unauthorized")(head, writer)
            with suppress(ConnectionError):
                await writer.wait_closed()

    async with Early(hang) as server:
        upload = Request("POST", "/files", b"", b"x" * 30_000_000)
        assert (await pool.exchange(route(server), upload, SECONDS)).status == 401
        assert (await pool.exchange(route(server), GET, SECONDS)).status == 401
        assert server.connections == 2


async def test_a_stream(pool: Pool) -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with Scripted(raw(start, b"3\r\none\r\n", b"3\r\ntwo\r\n0\r\n\r\n"), reply()) as server:
        async with pool.stream(route(server), GET, SECONDS) as (status, connection):
            assert status == 200
            assert b"".join([part async for part in connection.parts(SECONDS)]) == b"onetwo"
        await pool.exchange(route(server), GET, SECONDS)
        assert server.connections == 1


async def test_a_stream_that_is_left_is_closed(pool: Pool) -> None:
    async with Scripted(raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")) as server:
        async with pool.stream(route(server), GET, SECONDS) as (_, connection):
            async for part in connection.parts(SECONDS):
                assert part == b"one"
                break
        await eventually(lambda: not server.open)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"), IdleTimeout),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n", close=True), Disconnected),
    ],
)
async def test_a_stream_that_does_not_end(pool: Pool, handler: Handler, error: type[Exception]) -> None:
    async with Scripted(handler) as server, pool.stream(route(server), GET, SECONDS) as (_, connection):
        parts = connection.parts(0.3)
        assert await anext(parts) == b"one"
        with pytest.raises(error):
            await anext(parts)


@pytest.mark.parametrize("first", ["exchange", "stream"])
async def test_the_timeout_of_a_request_ends_with_it(pool: Pool, first: str) -> None:
    """Not the next request on the same connection."""
    received, passed = asyncio.Event(), asyncio.Event()

    async def in_two_parts(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await received.wait()
        writer.write(b"0\r\n\r\n")

    async def late(_: bytes, writer: asyncio.StreamWriter) -> None:
        await passed.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    async with Scripted(reply() if first == "exchange" else in_two_parts, late) as server:
        if first == "exchange":
            await pool.exchange(route(server), GET, 0.5)
        else:
            async with pool.stream(route(server), GET, SECONDS) as (_, connection):
                async for part in connection.parts(0.5):
                    assert part == b"one"
                    received.set()
        asyncio.get_running_loop().call_later(1.0, passed.set)
        async with pool.stream(route(server), GET, SECONDS) as (_, connection):
            assert [part async for part in connection.parts(SECONDS)] == [b"late"]
        assert server.connections == 1


async def test_a_connection_that_is_lost_between_two_parts_is_freed(pool: Pool) -> None:
    """Nothing waits for its timeout."""
    lost: list[weakref.ref[Connection]] = []

    async def read() -> None:
        async with pool.stream(route(server), GET, SECONDS) as (_, connection):
            lost.append(weakref.ref(connection))
            parts = connection.parts(SECONDS)
            await anext(parts)
            server.disconnect()
            await asyncio.shield(connection.closed)
            with pytest.raises(Disconnected):
                await anext(parts)

    async with Scripted(raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")) as server:
        await read()
        await asyncio.sleep(0)
        gc.collect()
        assert lost[0]() is None


@pytest.mark.parametrize("failure", ["cut", "too large", "late"])
async def test_the_body_of_a_failed_response_is_freed_at_once(pool: Pool, failure: str) -> None:
    """Also without the garbage collector, which may run late."""
    head = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n", bytes(4_000_000), close=failure == "cut")

    async def fail() -> None:
        async with Scripted(head) as server:
            limit = 3_000_000 if failure == "too large" else None
            with pytest.raises((Disconnected, TooLarge, ResponseTimeout)):
                await pool.exchange(route(server), GET, 0.2 if failure == "late" else SECONDS, limit)

    await fail()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(4):
            await fail()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 4_000_000


async def test_a_slow_reader_stops_a_fast_server(pool: Pool) -> None:
    sent = 0

    async def flood(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        while sent < 200_000_000:
            writer.write(bytes(1_000_000))
            await writer.drain()
            sent += 1_000_000

    async with Scripted(flood) as server, pool.stream(route(server), GET, SECONDS) as (_, connection):
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)  # until the buffers are full
        assert sent < 100_000_000
        size = 0
        async for part in connection.parts(SECONDS):
            size += len(part)
        assert size == 200_000_000


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("through_proxy", [False, True])
async def test_a_stream_that_does_not_begin(pool: Pool, scheme: str, through_proxy: bool) -> None:
    async with Scripted(hang) as server:
        direct = Origin(scheme, "127.0.0.1", server.port)
        proxy = Proxy(Origin("http", "127.0.0.1", server.port)) if through_proxy else None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SECONDS), pool.stream(Route(direct, proxy=proxy), GET, 0.2):
                pytest.fail("the server does not respond")
        await eventually(lambda: not pool.open_connections and not server.open)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", ".example"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_host_name_that_is_not_valid(pool: Pool, scheme: str, host: str) -> None:
    with pytest.raises(CannotConnect, match="the host name is not valid"):
        await pool.exchange(Route(Origin(scheme, host, 80)), GET, SECONDS)


async def test_nothing_listens(pool: Pool) -> None:
    port = free_port()
    with pytest.raises(CannotConnect, match=rf"^cannot connect to 127.0.0.1:{port}: .*refused"):
        await pool.exchange(Route(Origin("http", "127.0.0.1", port)), GET, SECONDS)


async def test_a_name_that_does_not_exist(pool: Pool) -> None:
    with pytest.raises(CannotConnect, match=r"^cannot connect to no\.such\.invalid:80: "):
        await pool.exchange(Route(Origin("http", "no.such.invalid", 80)), GET, SECONDS)


async def test_a_server_that_does_not_accept() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        async with Pool(connect_timeout=0.3) as pool:
            fillers = [socket.socket() for _ in range(3)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            with pytest.raises(CannotConnect, match=r"no response within 0\.3 s"):
                await pool.exchange(Route(Origin("http", "127.0.0.1", port)), GET, SECONDS)
            for filler in fillers:
                filler.close()


@pytest.mark.parametrize("listening", ["127.0.0.1", "::1"])
async def test_the_first_address_that_responds(pool: Pool, monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    """A name has an address of each family; the server listens on one of them."""
    async with Scripted(reply(), host=listening) as server:
        port = server.port

        async def both(*_: object) -> list[object]:
            stream = socket.SOCK_STREAM
            return [
                (socket.AF_INET6, stream, 6, "", ("::1", port, 0, 0)),
                (socket.AF_INET, stream, 6, "", ("127.0.0.1", port)),
            ]

        monkeypatch.setattr(connecting, "resolve", both)
        response = await pool.exchange(Route(Origin("http", "coder.example", port)), GET, SECONDS)
        assert response.status == 200
        assert f"Host: coder.example:{port}\r\n".encode() in server.heads[0]


async def test_connect_to() -> None:
    async with Scripted(reply()) as server:
        routes = {Endpoint("coder.example", 80): Endpoint("127.0.0.1", server.port)}
        async with Pool(connect_timeout=5, connect_to=routes) as pool:
            await pool.exchange(Route(Origin("http", "coder.example", 80)), GET, SECONDS)
    assert b"Host: coder.example\r\n" in server.heads[0]


class TestTLS:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path, "ca", datetime.now(UTC))

    @pytest.fixture
    def serving(self, authority: Authority) -> ssl.SSLContext:
        pair = authority.serving("server", ["127.0.0.1", "coder.example"])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    @pytest.fixture
    def trusting(self, authority: Authority) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(authority.certificate))

    async def test_the_server_is_verified(self, pool: Pool, serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
        async with Scripted(reply(), tls=serving) as server:
            origin = Origin("https", "127.0.0.1", server.port)
            assert (await pool.exchange(Route(origin, trusting), GET, SECONDS)).status == 200
            assert (await pool.exchange(Route(origin, trusting, "coder.example"), GET, SECONDS)).status == 200
            with pytest.raises(CannotConnect, match=r"certificate is not valid: .*elsewhere"):
                await pool.exchange(Route(origin, trusting, "elsewhere.example"), GET, SECONDS)
            with pytest.raises(CannotConnect, match="certificate is not valid"):
                await pool.exchange(Route(origin), GET, SECONDS)

    async def test_a_server_without_tls(self, pool: Pool, trusting: ssl.SSLContext) -> None:
        async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            origin = Origin("https", "127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(CannotConnect, match="TLS failed"):
                await pool.exchange(Route(origin, trusting), GET, SECONDS)

    @pytest.mark.parametrize("over_tls", [False, True], ids=["http proxy", "https proxy"])
    async def test_through_a_proxy(
        self, serving: ssl.SSLContext, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, over_tls: bool
    ) -> None:
        monkeypatch.setattr("coder_k8s.http.connecting.default_context", lambda: trusting)
        async with Scripted(reply(), tls=serving) as server, ConnectProxy(serving if over_tls else None) as proxy:
            headers = (("Proxy-Authorization", "Basic secret"),)
            through = Proxy(Origin("https" if over_tls else "http", "127.0.0.1", proxy.port), headers)
            where = Route(Origin("https", "127.0.0.1", server.port), trusting, None, through)
            async with Pool(connect_timeout=5) as pool:
                assert (await pool.exchange(where, GET, SECONDS)).status == 200
                assert (await pool.exchange(where, GET, SECONDS)).status == 200
        [head] = proxy.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic secret\r\n" in head
        assert not any(b"Proxy-Authorization" in head for head in server.heads)

    @pytest.mark.parametrize(
        ("handler", "message"),
        [
            (reply(b"", status="407 Proxy Authentication Required"), "the proxy returned 407 Proxy Authentication"),
            (raw(close=True), "the proxy did not respond: the connection ended"),
            (raw(b"garbage\r\n\r\n"), "the proxy did not respond: not HTTP"),
        ],
    )
    async def test_a_proxy_that_does_not_connect(
        self, pool: Pool, trusting: ssl.SSLContext, handler: Handler, message: str
    ) -> None:
        async with Scripted(handler) as proxy:
            through = Proxy(Origin("http", "127.0.0.1", proxy.port), (("Proxy-Authorization", "Basic secret"),))
            with pytest.raises(CannotConnect, match=message) as raised:
                await pool.exchange(Route(Origin("https", "coder.example", 443), trusting, None, through), GET, SECONDS)
            assert "secret" not in repr(raised.value)
            assert isinstance(raised.value, ProxyRefused) == ("407" in message)
            await eventually(lambda: not proxy.open)


async def test_a_proxy_forwards_requests_without_tls(pool: Pool) -> None:
    async with Scripted(reply()) as proxy:
        through = Proxy(Origin("http", "127.0.0.1", proxy.port), (("Proxy-Authorization", "Basic secret"),))
        await pool.exchange(Route(Origin("http", "coder.example", 8080), None, None, through), GET, SECONDS)
    assert proxy.heads[0].startswith(b"GET http://coder.example:8080/x HTTP/1.1\r\nHost: coder.example:8080\r\n")
    assert b"Proxy-Authorization: Basic secret\r\n" in proxy.heads[0]


@pytest.mark.parametrize("headers", [{"Token": "our-token", "X": "€"}, {"Token": "our-tokén"}])
def test_a_header_that_is_not_ascii(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidURL, match="not ASCII") as raised:
        encode_headers(headers)
    assert "our-tok" not in repr(raised.value)
    assert raised.value.__context__ is None


async def test_errors_keep_no_request() -> None:
    """An error that is kept does not keep the headers of its request, which contain a token."""
    async with Scripted(raw(close=True)) as server, Pool(connect_timeout=5) as pool:
        request = Request("GET", "/", encode_headers({"Authorization": "Bearer our-token"}))
        try:
            await pool.exchange(route(server), request, SECONDS)
        except Disconnected as error:
            kept = error.with_traceback(None)
    del request
    gc.collect()
    assert "our-token" not in repr(vars(kept)) + str(kept)
    assert kept.__cause__ is None


@pytest.mark.parametrize(
    ("url", "origin", "path", "authorization"),
    [
        ("http://coder", Origin("http", "coder", 80), "/", ""),
        ("https://Coder:8443/a/b?c=d", Origin("https", "coder", 8443), "/a/b?c=d", ""),
        ("http://[::1]:80/%2F", Origin("http", "::1", 80), "/%2F", ""),
        ("http://me:p%40ss@coder/", Origin("http", "coder", 80), "/", "Basic bWU6cEBzcw=="),
    ],
)
def test_urls(url: str, origin: Origin, path: str, authorization: str) -> None:
    assert parse_url(url) == (origin, path, authorization)


@pytest.mark.parametrize(
    "url", ["", "coder", "ftp://coder", "http://", "http://[::1", "http://a:b", "http://a b", "http://a/\n", "http://ä"]
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(InvalidURL):
        parse_url(url)


@pytest.mark.parametrize(
    ("origin", "authority", "address"),
    [
        (Origin("http", "coder", 80), "coder", "coder:80"),
        (Origin("https", "coder", 80), "coder:80", "coder:80"),
        (Origin("https", "::1", 443), "[::1]", "[::1]:443"),
    ],
)
def test_origins(origin: Origin, authority: str, address: str) -> None:
    assert (origin.authority, origin.address) == (authority, address)


class ConnectProxy(Scripted):
    """A proxy for CONNECT."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(hang, tls=tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        self.open.add(writer)
        host, port = head.split(b" ")[1].decode().rsplit(":", 1)
        upstream_reader, upstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            except ConnectionError:
                pass
            finally:
                target.transport.abort()

        await asyncio.gather(copy(reader, upstream), copy(upstream_reader, writer))
        self.open.discard(writer)
