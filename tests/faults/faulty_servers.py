"""Proxies that make a server slow, silent, unreachable or replaced for a time."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Self

from tests.support.databases import CoderdDatabase

BACK_SOON = b"<html><body>Back soon</body></html>"
HTML = b"Content-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BACK_SOON), BACK_SOON)

Fault = Callable[[], AbstractAsyncContextManager[None]]
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FaultyServer:
    """A TCP proxy in front of a server that injects faults.

    A fault begins and ends with all connections aborted, so that it affects those that were open before.
    """

    def __init__(self, port: int, pause: float = 0.5) -> None:
        self.port = 0
        self._inner = port
        self._pause = pause
        self._handle: Handle = self._forward
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._reserved = socket.socket()  # reserves the port while no server listens
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._abort_connections()
        self._reserved.close()

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Connections are refused."""
        self._server.close()
        await self._abort_connections()
        try:
            yield
        finally:
            await self._listen()

    def slow(self) -> AbstractAsyncContextManager[None]:
        """Every chunk of a response is delayed."""
        return self._handling(self._delay)

    def silent(self) -> AbstractAsyncContextManager[None]:
        """Connections are accepted, and requests get no response."""
        return self._handling(self._hang)

    def bad_gateway(self) -> AbstractAsyncContextManager[None]:
        """A load balancer responds with 502 and HTML."""
        return self._handling(self._bad_gateway)

    def wrong_server(self) -> AbstractAsyncContextManager[None]:
        """Another server responds with 200 and HTML."""
        return self._handling(self._wrong_server)

    @asynccontextmanager
    async def _handling(self, handle: Handle) -> AsyncIterator[None]:
        self._handle = handle
        await self._abort_connections()
        try:
            yield
        finally:
            self._handle = self._forward
            await self._abort_connections()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_port=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections[connection] = writer
        connection.add_done_callback(self._connections.pop)

    async def _abort_connections(self) -> None:
        connections = dict(self._connections)
        for connection, writer in connections.items():
            writer.transport.abort()
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected, or the server is unreachable
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float = 0) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._inner)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, onward_writer, 0))
                group.create_task(_pump(onward_reader, writer, pause))
        except* OSError:
            pass
        finally:
            onward_writer.close()

    async def _delay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._forward(reader, writer, self._pause)

    async def _hang(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async def _bad_gateway(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n" + HTML)

    async def _wrong_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + HTML)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
    """Forward until one side closes, then close the other."""
    while data := await reader.read(1 << 16):
        await asyncio.sleep(pause)
        writer.write(data)
        await writer.drain()
    raise ConnectionError("ended")


@asynccontextmanager
async def rejecting(database: CoderdDatabase) -> AsyncIterator[None]:
    """The server rejects connections to this database."""
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    try:
        yield
    finally:
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")


async def inject_faults(
    faults: Mapping[str, Fault], rng: Random, seconds: float, longest: float, done: Counter[str]
) -> None:
    """Inject faults one after the other, in random order and for random times, for some seconds."""
    end = time.monotonic() + seconds
    while True:
        for name in rng.sample(sorted(faults), len(faults)):
            if time.monotonic() > end:
                return
            async with faults[name]():
                await asyncio.sleep(rng.uniform(1, longest))
            done[name] += 1
            await asyncio.sleep(rng.uniform(0, longest / 2))
