"""A TCP server with scripted responses, that records what it receives."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Gets the head of a request."""


def reply(body: bytes = b"ok", *headers: str, status: str = "200 OK") -> Handler:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]).encode()

    async def respond(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head + body)

    return respond


def raw(*parts: bytes, close: bool = False) -> Handler:
    """Sends parts as they are, each after the one before was sent."""

    async def respond(_: bytes, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if close:
            writer.close()

    return respond


async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
    """Sends nothing."""


class Scripted:
    """Sends its responses in order, over all connections, and repeats the last one."""

    def __init__(self, *handlers: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._handlers = list(handlers)
        self._tls = tls
        self._host = host
        self._server: asyncio.Server
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self.open):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def disconnect(self) -> None:
        """Close all connections, as a server does with idle ones."""
        for writer in list(self.open):
            writer.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0"
                )
                self.bodies.append(await reader.readexactly(int(length.partition(b":")[2])))
                self.heads.append(head)
                handler = self._handlers.pop(0) if len(self._handlers) > 1 else self._handlers[0]
                await handler(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.transport.abort()
