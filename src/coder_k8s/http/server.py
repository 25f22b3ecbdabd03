"""A small HTTP server for a few GET routes."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qs

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

MAX_HEAD = 16 * 1024
"""Bytes of a request; its body counts too, because no route reads one."""
IDLE = 75.0
"""Seconds without a complete request after which a connection is closed."""


class Received(msgspec.Struct, frozen=True):
    """A request."""

    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    """The keys are lower-case."""


class Reply(msgspec.Struct, frozen=True):
    """A response."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[Received], Reply]]
"""The handler of each path."""


class ServerConnection(asyncio.Protocol):
    """Answers the requests of one connection, in order."""

    def __init__(self, routes: Routes, connections: set["ServerConnection"]) -> None:
        self._routes = routes
        self._connections = connections
        self._parser = HttpRequestParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._url = b""
        self._headers: dict[str, str] = {}
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._restart_timer()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._respond(_error(400), keep_alive=False)
        if self._received > MAX_HEAD:
            self._respond(_error(431), keep_alive=False)

    # Callbacks of the parser.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        path, _, query = self._url.decode("latin-1").partition("?")
        request = Received(path, parse_qs(query, keep_blank_values=True), self._headers)
        self._url, self._headers, self._received = b"", {}, 0
        self._restart_timer()
        self._respond(self._handle(method, request), self._parser.should_keep_alive(), content=method != b"HEAD")

    def _handle(self, method: bytes, request: Received) -> Reply:
        handler = self._routes.get(request.path)
        if handler is None:
            return _error(404)
        return handler(request) if method in (b"GET", b"HEAD") else _error(405)

    def _respond(self, reply: Reply, keep_alive: bool, *, content: bool = True) -> None:
        if self.transport.is_closing():
            return
        lines = (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            "",
            "",
        )
        self.transport.write("\r\n".join(lines).encode("latin-1") + (reply.body if content else b""))
        if not keep_alive:
            self.transport.close()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE, self.transport.abort)


async def serve(host: str | None, port: int, routes: Routes, connections: set[ServerConnection]) -> asyncio.Server:
    """Listen on an address; `connections` has those that are open."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: ServerConnection(routes, connections), host, port)


def _error(status: int) -> Reply:
    return Reply(f"{HTTPStatus(status).phrase}\n".encode(), status)
