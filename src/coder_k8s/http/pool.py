"""The HTTP client: connections that are kept open between requests."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Self

import msgspec

from .connecting import Endpoint, Route, connect
from .connection import Connection, Response
from .errors import InvalidURL

IDLE = 15.0
"""Seconds that an idle connection is kept; less than servers keep one."""
CLOSE_TIMEOUT = 2.0


class Request(NamedTuple):
    """What is sent."""

    method: str
    path: str
    headers: bytes
    """As `encode_headers` returns them, without `Host` and `Content-Length`."""
    body: bytes | None = None
    check: Callable[[], None] | None = None
    """Called right before the request is written; what it raises prevents the request."""


class Line(msgspec.Struct, eq=False):
    """The connections of one route."""

    idle: deque[Connection] = msgspec.field(default_factory=deque)
    used: int = 0
    waiting: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)


class Pool:
    """Sends requests. Connections are limited per route, so a server that hangs does not block others."""

    def __init__(
        self,
        *,
        connect_timeout: float,
        connections: int | None = None,
        connect_to: Mapping[Endpoint, Endpoint] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()  # to get it takes a system call in Python 3.11
        self._connect_timeout = connect_timeout
        self._limit = connections
        self._connect_to = connect_to or {}
        self._lines: defaultdict[Route, Line] = defaultdict(Line)
        self.open_connections: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections, also those of requests that were cancelled."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        closing = [connection.closed for connection in self.open_connections]
        for connection in list(self.open_connections):
            connection.abort()
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)

    async def exchange(self, route: Route, request: Request, seconds: float, limit: int | None = None) -> Response:
        """Send a request and return its response; raise `TimeoutError` if it is not complete in time.

        `limit` is the maximum size of the body, in bytes.
        """
        deadline = self._loop.time() + seconds
        connection = self._acquire_idle(route)
        if connection is None:
            async with asyncio.timeout_at(deadline):
                connection = await self._acquire(route)
        try:
            self._send(connection, route, request, limit)
            return await connection.read(deadline)
        finally:
            self._release(route, connection)

    @asynccontextmanager
    async def stream(self, route: Route, request: Request, seconds: float) -> AsyncGenerator[tuple[int, Connection]]:
        """Send a request and wait for the headers, for `seconds` at most.

        Yields the status, and the connection to read the body from.
        """
        deadline = self._loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            connection = await self._acquire(route)
        try:
            async with asyncio.timeout_at(deadline):
                self._send(connection, route, request, None)
                status = (await connection.head()).status
            yield status, connection
        finally:
            self._release(route, connection)

    def _send(self, connection: Connection, route: Route, request: Request, limit: int | None) -> None:
        if request.check is not None:
            request.check()
        connection.send(_head(route, request), request.body, limit)

    def _acquire_idle(self, route: Route) -> Connection | None:
        """Return a connection for one request if it need not be waited for."""
        line = self._lines.get(route)
        if line is None or (self._limit is not None and line.used >= self._limit):
            return None
        connection = self._take_idle(line)
        if connection is not None:
            line.used += 1
        return connection

    async def _acquire(self, route: Route) -> Connection:
        """Return a connection for one request, which `_release` ends."""
        line = self._lines[route]
        if self._limit is not None and line.used >= self._limit:
            await self._wait(route, line)
        else:
            line.used += 1
        try:
            return self._take_idle(line) or await self._connect(route)
        except BaseException:
            self._leave(route, line)
            raise

    def _release(self, route: Route, connection: Connection) -> None:
        """Keep the connection for the next request only if the response is complete."""
        line = self._lines[route]
        if connection.reusable:
            self._keep(line, connection)
        else:
            connection.drop()
        self._leave(route, line)

    def _leave(self, route: Route, line: Line) -> None:
        """Pass the turn to the request that waits for the longest time; another one could take it otherwise."""
        while line.waiting:
            waiter = line.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        line.used -= 1
        if not line.used and not line.idle:
            self._lines.pop(route, None)

    async def _wait(self, route: Route, line: Line) -> None:
        """Wait for the turn of another request."""
        waiter = self._loop.create_future()
        line.waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            with suppress(ValueError):
                line.waiting.remove(waiter)
            if waiter.done() and not waiter.cancelled():
                self._leave(route, line)
            raise

    async def _connect(self, route: Route) -> Connection:
        connection = await connect(route, self._connect_to, self._connect_timeout)
        self.open_connections.add(connection)
        connection.closed.add_done_callback(lambda _: self.open_connections.discard(connection))
        return connection

    def _take_idle(self, line: Line) -> Connection | None:
        while line.idle:
            connection = line.idle.pop()  # the one that was used last
            if connection.reusable:
                return connection
        return None

    def _keep(self, line: Line, connection: Connection) -> None:
        connection.idle_since = self._loop.time()
        line.idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were not used for a while."""
        self._sweeper = None
        oldest = self._loop.time() - IDLE
        for route, line in list(self._lines.items()):
            while line.idle and line.idle[0].idle_since <= oldest:
                line.idle.popleft().abort()
            if not line.idle and not line.used and not line.waiting:
                del self._lines[route]
        if any(line.idle for line in self._lines.values()):
            self._sweeper = self._loop.call_later(IDLE / 3, self._sweep)


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return the lines of headers. Many requests have the same ones, so that they need not be encoded for each."""
    return b"".join([_encode_line(f"{name}: {value}") for name, value in headers.items()])


def _head(route: Route, request: Request) -> bytes:
    """The request line and the headers."""
    origin, path, more = route.origin, request.path, b""
    if route.proxy is not None and not route.tunnels:  # it forwards the request
        path = f"{origin.scheme}://{origin.authority}{path}"
        more = encode_headers(dict(route.proxy.headers))
    line = _encode_line(f"{request.method} {path} HTTP/1.1")
    host = _encode_line(f"Host: {origin.authority}")
    size = b"Content-Length: %d\r\n" % len(request.body) if request.body is not None else b""
    return b"".join((line, host, request.headers, more, size, b"\r\n"))


def _encode_line(line: str) -> bytes:
    if "\r" in line or "\n" in line:
        raise InvalidURL("a header contains a line break")
    if not line.isascii():
        raise InvalidURL("a header contains characters that are not ASCII")
    return line.encode("ascii") + b"\r\n"
