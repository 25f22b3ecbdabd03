"""One connection, and one request on it at a time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec

from .errors import Disconnected, HttpError, IdleTimeout, ResponseTimeout
from .incoming import Incoming

HIGH_WATER = 1 << 20
"""Bytes of a streaming response that are buffered before the connection is no longer read."""

CLOCK_RESOLUTION = 0.001
"""Seconds by which a timer of an event loop may be early."""


class Response(msgspec.Struct, frozen=True):
    """A complete response. The keys of the headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """Sends requests and reads their responses, on a transport that `connecting` opened."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._incoming = Incoming()
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: tuple[float, HttpError] | None = None
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        self._paused = False
        self._made = False
        self.transport: asyncio.Transport
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.idle_since = 0.0

    @property
    def reusable(self) -> bool:
        """Whether the last request was sent, its response is complete, and the connection can send another request."""
        incoming, transport = self._incoming, self.transport
        if not (incoming.complete and incoming.keep_alive):
            return False
        return not (self.closed.done() or transport.is_closing() or transport.get_write_buffer_size())

    def send(self, head: bytes, body: bytes | None, incoming_limit: int | None = None, *, tunnel: bool = False) -> None:
        """Send a request; `tunnel` for CONNECT."""
        self._incoming.expect(limit=incoming_limit, headers_only=tunnel)
        self._deadline = None  # of an earlier request
        if self.closed.done():
            self._incoming.feed_eof()
            return
        self.transport.write(head + body if body else head)

    async def head(self) -> Incoming:
        """Wait for the headers of the response."""
        incoming = self._incoming
        while not incoming.headers_complete:
            await self._changed()
        return incoming

    async def read(self, deadline: float) -> Response:
        """Wait for the complete response until the deadline, a time of the event loop."""
        incoming = self._incoming
        if not incoming.complete:
            self._set_deadline(deadline, ResponseTimeout("no response in time"))
        while not incoming.complete:
            self._resume()  # the whole body is wanted, however large it is
            await self._changed()
        return Response(incoming.status, incoming.headers, incoming.take())

    async def parts(self, idle_timeout: float) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive."""
        incoming, idle = self._incoming, IdleTimeout(f"no data for {idle_timeout:g} s")
        while True:
            if incoming.chunks:
                data = incoming.take()
                self._resume()
                self._deadline = None
                yield data
            elif incoming.complete:
                return
            else:
                if self._deadline is None:
                    self._set_deadline(self._loop.time() + idle_timeout, idle)
                await self._changed()

    def abort(self) -> None:
        """Close the connection at once, if it was made; a TLS shutdown would wait for the server."""
        if self._made:
            self.transport.abort()

    def drop(self) -> None:
        """Close the connection after its last use."""
        self.abort()
        self._incoming.clear()

    async def _changed(self) -> None:
        """Wait for the next part of the response; raise its error."""
        incoming = self._incoming
        if incoming.error is None:
            self._waiter = waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        if incoming.error is not None:
            raise incoming.error

    def _set_deadline(self, deadline: float, error: HttpError) -> None:
        """Let the response fail at the deadline.

        The timer of an earlier request stays if it ends before, and is started again then: few requests need one.
        """
        if self.closed.done():
            return  # the response has ended already
        self._deadline = (deadline, error)
        if self._timer is None or self._timer[0] > deadline:
            self._start_timer(deadline)

    def _start_timer(self, time: float) -> None:
        self._stop_timer()
        self._timer = (time, self._loop.call_at(time, self._expire))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self._deadline is None or self._incoming.complete:
            return
        time, error = self._deadline
        if self._loop.time() < time - CLOCK_RESOLUTION:
            self._start_timer(time)
        else:
            self._incoming.fail(error)
            self._wake()

    def _resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = True
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        incoming.feed(data)
        self._wake()
        if incoming.error is not None or (incoming.complete and not incoming.keep_alive):
            self.abort()
        elif incoming.buffered > HIGH_WATER and not incoming.complete:
            self._paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._incoming.feed_eof()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        if error is not None:
            self._incoming.fail(Disconnected(str(error) or type(error).__name__))
        self._incoming.feed_eof()
        self._wake()
        if not self.closed.done():
            self.closed.set_result(None)
