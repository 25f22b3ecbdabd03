"""A small HTTP server for a few GET routes."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast
from urllib.parse import parse_qs

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

log = logging.getLogger(__name__)

MAX_HEAD = 16 * 1024
"""Bytes of a request; its body counts too, because no route reads one."""
IDLE = 75.0
"""Seconds without a complete request after which a connection is closed."""
MAX_PIPELINED = 8
"""Requests that a client may send at once. More of them close the connection: each takes time of the event loop."""
MAX_CONNECTIONS = 100
"""Open connections; another one closes the one that is idle for the longest time."""

PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


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


_uses = itertools.count()
"""Orders connections by their last request."""


class Parsed(NamedTuple):
    """A request that waits for its response."""

    method: bytes
    request: Received
    keep_alive: bool


class ServerConnection(asyncio.Protocol):
    """Answers the requests of one connection, in order. It reads no more of them while responses are not received."""

    def __init__(self, routes: Routes, connections: set["ServerConnection"]) -> None:
        self._routes = routes
        self._connections = connections
        self._parser = HttpRequestParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._url = b""
        self._headers: dict[str, str] = {}
        self._parsed: list[Parsed] = []
        self._too_many = False
        self.transport: asyncio.Transport
        self.last_used = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if len(self._connections) >= MAX_CONNECTIONS:
            idle = min(self._connections, key=lambda each: each.last_used)
            self._connections.discard(idle)
            idle.transport.abort()
        self._connections.add(self)
        self._restart_timer()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        upgrade, error = False, None
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # it is ignored, but what follows may be another protocol
            upgrade = True
        except HttpParserError:
            error = _error(400)
        if error is None and self._received > MAX_HEAD:
            error = _error(431)
        self._answer(last=upgrade)
        if error is not None:
            self._respond(error, keep_alive=False)

    def _answer(self, *, last: bool) -> None:
        """Respond to the requests that are complete; `last` if the connection ends with them."""
        parsed, self._parsed = self._parsed, []
        last = last or self._too_many
        for number, (method, request, keep_alive) in enumerate(parsed, start=1):
            kept = keep_alive and not (last and number == len(parsed))
            self._respond(self._handle(method, request), kept, content=method != b"HEAD")

    # Callbacks of the parser.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        url, headers = self._url, self._headers
        self._url, self._headers, self._received = b"", {}, 0
        if len(self._parsed) == MAX_PIPELINED:
            self._too_many = True
            return
        path, _, query = url.decode("latin-1").partition("?")
        request = Received(path, parse_qs(query, keep_blank_values=True), headers)
        self._parsed.append(Parsed(self._parser.get_method(), request, self._parser.should_keep_alive()))
        self._restart_timer()

    def _handle(self, method: bytes, request: Received) -> Reply:
        handler = self._routes.get(request.path)
        if handler is None:
            return _error(404)
        if method not in (b"GET", b"HEAD"):
            return _error(405)
        try:
            return handler(request)
        except Exception:
            log.exception("cannot respond to a request for %s", request.path)
            return _error(500)

    def _respond(self, reply: Reply, keep_alive: bool, *, content: bool = True) -> None:
        if self.transport.is_closing():
            return
        lines = (
            f"HTTP/1.1 {reply.status} {PHRASES[reply.status]}",
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
        self.last_used = next(_uses)


async def serve(host: str | None, port: int, routes: Routes, connections: set[ServerConnection]) -> asyncio.Server:
    """Listen on an address; `connections` has those that are open."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: ServerConnection(routes, connections), host, port)


def _error(status: int) -> Reply:
    return Reply(f"{PHRASES[status]}\n".encode(), status)
