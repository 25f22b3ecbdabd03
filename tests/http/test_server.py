"""The server of health and metrics, with requests as bytes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from coder_k8s.http import server as servers
from coder_k8s.http.server import Received, Reply, ServerConnection, serve


def answer(request: Received) -> Reply:
    return Reply(f"{request.query} {request.headers.get('accept')}".encode())


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    connections: set[ServerConnection] = set()
    server = await serve("127.0.0.1", 0, {"/a": answer}, connections)
    yield server.sockets[0].getsockname()
    server.close()
    for connection in connections:
        connection.transport.abort()


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


async def test_an_incomplete_request_is_closed(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "IDLE", 0.1)
    with pytest.raises(ConnectionError):
        raise ConnectionError(await responses(address, b"GET /a HT"))
