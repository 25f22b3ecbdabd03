"""The server of health and metrics, with requests as bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from coder_k8s.http import server as servers
from coder_k8s.http.server import Received, Reply, ServerConnection, serve


def answer(request: Received) -> Reply:
    return Reply(f"{request.query} {request.headers.get('accept')}".encode())


@asynccontextmanager
async def serving(path: str, handler: Callable[[Received], Reply]) -> AsyncIterator[tuple[str, int]]:
    connections: set[ServerConnection] = set()
    server = await serve("127.0.0.1", 0, {path: handler}, connections)
    yield server.sockets[0].getsockname()
    server.close()
    for connection in connections:
        connection.transport.abort()


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    async with serving("/a", answer) as address:
        yield address


async def responses(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send the parts and return everything until the server closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


CLOSE = b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /a?x&y=1 HTTP/1.1\r\nAccept: z\r\n", b"200 OK", b"{'x': [''], 'y': ['1']} z"),
        (b"GET /b HTTP/1.1\r\n", b"404 Not Found", b"Not Found\n"),
        (b"POST /a HTTP/1.1\r\n", b"405 Method Not Allowed", b"Method Not Allowed\n"),
    ],
)
async def test_requests(address: tuple[str, int], request_line: bytes, status: bytes, body: bytes) -> None:
    head, _, received = (await responses(address, request_line + CLOSE)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert f"Content-Length: {len(body)}".encode() in head
    assert received == body


async def test_head_has_no_body(address: tuple[str, int]) -> None:
    response = await responses(address, b"HEAD /a HTTP/1.1\r\n" + CLOSE)
    assert response.endswith(b"\r\n\r\n")
    assert b"Content-Length: 7" in response


async def test_requests_in_pieces_and_in_a_row(address: tuple[str, int]) -> None:
    request = b"GET /a HTTP/1.1\r\nAccept: z\r\n\r\n"
    last = b"GET /b HTTP/1.1\r\n" + CLOSE
    received = await responses(address, request[:9], request[9:] + request, last)
    assert [received.count(text) for text in (b"200 OK", b"404 Not Found", b"keep-alive")] == [2, 1, 2]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"garbage\r\n\r\n", b"400"),
        (b"GET /a HTTP/1.1\r\nX: " + b"x" * servers.MAX_HEAD, b"431"),
        (b"GET /a HTTP/1.1\r\nContent-Length: 99999\r\n\r\n" + b"x" * servers.MAX_HEAD, b"431"),
    ],
)
async def test_invalid_requests(address: tuple[str, int], data: bytes, status: bytes) -> None:
    assert (await responses(address, data)).startswith(b"HTTP/1.1 " + status)


async def test_a_client_that_sends_many_requests_at_once(address: tuple[str, int]) -> None:
    many = servers.MAX_PIPELINED
    received = await responses(address, b"GET /a HTTP/1.1\r\n\r\n" * (many + 100))
    assert received.count(b"200 OK") == many
    assert received.count(b"keep-alive") == many - 1, "the last response says that the connection ends"
    assert b"431" not in received


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    handled, content = 0, b"x" * 10_000_000  # more than the buffers of the sockets

    def large(_: Received) -> Reply:
        nonlocal handled
        handled += 1
        return Reply(content)

    async with serving("/", large) as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(100):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.001)  # so that they do not arrive at once
        before = handled
        async with asyncio.timeout(30):
            while handled == before:
                await reader.read(1 << 20)
        writer.transport.abort()
    assert 0 < before <= servers.MAX_PIPELINED


async def test_an_upgrade_is_ignored(address: tuple[str, int]) -> None:
    upgrade = b"GET /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n"
    received = await responses(address, upgrade)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1") == received.count(b"Connection: close") == 1


async def test_a_handler_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Received) -> Reply:
        raise RuntimeError("defect")

    async with serving("/", fail) as address:
        received = await responses(address, b"GET / HTTP/1.1\r\n" + CLOSE)
    assert received.startswith(b"HTTP/1.1 500 Internal Server Error")
    assert "cannot respond to a request for /" in caplog.text
    assert "RuntimeError: defect" in caplog.text


async def test_idle_connections_do_not_keep_others_out(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 3)
    opened = [await asyncio.open_connection(*address) for _ in range(3)]
    reader, writer = opened[0]
    writer.write(b"GET /a HTTP/1.1\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert (await responses(address, b"GET /a HTTP/1.1\r\n" + CLOSE)).startswith(b"HTTP/1.1 200")
    with pytest.raises(ConnectionError):
        raise ConnectionError(await opened[1][0].read())  # it was idle for the longest time
    writer.write(b"GET /b HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"404 Not Found")
    for _, each in opened:
        each.close()


async def test_an_incomplete_request_is_closed(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "IDLE", 0.1)
    with pytest.raises(ConnectionError):
        raise ConnectionError(await responses(address, b"GET /a HT"))
