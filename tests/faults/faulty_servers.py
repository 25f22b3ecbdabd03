"""Servers that are slow, silent, not there or not themselves from time to time."""

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
Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FaultyServer:
    """A port before a server, which passes on what is said unless there is trouble.

    Trouble begins and ends with a cut of all connections, so that nobody is spared who came before it.
    """

    def __init__(self, port: int, pause: float = 0.5) -> None:
        self.port = 0
        self._inner = port
        self._pause = pause
        self._converse: Conversation = self._pass_on
        self._links: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._place = socket.socket()  # keeps the port while nobody listens
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._cut()
        self._place.close()

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Connections are refused."""
        self._server.close()
        await self._cut()
        try:
            yield
        finally:
            await self._listen()

    def slow(self) -> AbstractAsyncContextManager[None]:
        """Every part of an answer comes late."""
        return self._otherwise(self._dawdle)

    def silent(self) -> AbstractAsyncContextManager[None]:
        """Connections are taken, and nothing is said."""
        return self._otherwise(self._ignore)

    def away(self) -> AbstractAsyncContextManager[None]:
        """A load balancer answers that there is nobody, in HTML."""
        return self._otherwise(self._excuse)

    def strange(self) -> AbstractAsyncContextManager[None]:
        """Somebody else answers, in HTML, as if all were well."""
        return self._otherwise(self._pretend)

    @asynccontextmanager
    async def _otherwise(self, converse: Conversation) -> AsyncIterator[None]:
        self._converse = converse
        await self._cut()
        try:
            yield
        finally:
            self._converse = self._pass_on
            await self._cut()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_port=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._serve(reader, writer))
        self._links[link] = writer
        link.add_done_callback(self._links.pop)

    async def _cut(self) -> None:
        links = dict(self._links)
        for link, writer in links.items():
            writer.transport.abort()
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever came has gone, or the server is really not there
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float = 0) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._inner)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, onward_writer, 0))
                group.create_task(_pump(onward_reader, writer, pause))
        except* OSError:
            pass
        finally:
            onward_writer.close()

    async def _dawdle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._pass_on(reader, writer, self._pause)

    async def _ignore(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async def _excuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n" + HTML)

    async def _pretend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + HTML)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
    """Pass on until one side has ended; then so does the other."""
    while data := await reader.read(1 << 16):
        await asyncio.sleep(pause)
        writer.write(data)
        await writer.drain()
    raise ConnectionError("ended")


@asynccontextmanager
async def refusing(database: CoderdDatabase) -> AsyncIterator[None]:
    """The server is there and lets nobody into this database."""
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    try:
        yield
    finally:
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")


async def inject_faults(
    faults: Mapping[str, Fault], rng: Random, seconds: float, longest: float, done: Counter[str]
) -> None:
    """Have one trouble after the other, each for a while, in random order, until the time is over."""
    end = time.monotonic() + seconds
    while True:
        for name in rng.sample(sorted(faults), len(faults)):
            if time.monotonic() > end:
                return
            async with faults[name]():
                await asyncio.sleep(rng.uniform(1, longest))
            done[name] += 1
            await asyncio.sleep(rng.uniform(0, longest / 2))
