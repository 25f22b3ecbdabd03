"""A TCP proxy in front of an API server that counts, holds, freezes and resets."""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from coder_k8s.kube.config import Config
from tests.support.api import plain_config
from tests.support.forwarding import kubeconfig_through

REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1.1\r\n")
RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


class Proxy:
    """Accepts HTTP without TLS, and connects to the API server with the certificates of the given configuration.

    A client certificate in the configuration determines the user; without one, the token of each request does.
    """

    def __init__(self, upstream: Config) -> None:
        self.requests: list[str] = []
        """All requests, such as `GET /version`, including those that were not forwarded."""
        self.answers = bytearray()
        self.blocked = False
        """Whether new connections are reset immediately."""
        self.hold: Callable[[str], bool] = lambda _: False
        """Selects the requests that wait for `release`."""
        self._released = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._upstream = upstream
        self._links: dict[asyncio.Task[None], _Link] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.blocked = True  # also those that are being accepted
        self._server.close()
        links = dict(self._links)
        for task, link in links.items():
            link.abort()  # a task that has not connected yet does not
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def config(self) -> Config:
        return plain_config(self._port)

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """Write a kubeconfig for the same identity through this proxy."""
        return kubeconfig_through(self._port, original, path)

    @property
    def _port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def lists(self) -> list[str]:
        return [request for request in self.requests if "limit=" in request]

    @property
    def watches(self) -> list[str]:
        return [request for request in self.requests if "watch=true" in request]

    @property
    def writes(self) -> list[str]:
        return [request for request in self.requests if not request.startswith("GET ")]

    def reset(self) -> None:
        """Reset every open connection."""
        for link in self._links.values():
            link.reset()

    def freeze(self) -> None:
        """Stop forwarding on the connections that are open now; new ones work."""
        for link in self._links.values():
            link.flowing.clear()

    def stop(self) -> None:
        """Stop forwarding on all connections; they can be opened and stay open."""
        self._flowing.clear()

    def release(self) -> None:
        """Forward the requests on hold."""
        self._released.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer)
        if self.blocked:
            link.reset()
        else:
            task = asyncio.create_task(self._serve(link))
            self._links[task] = link
            task.add_done_callback(self._links.pop)

    async def _serve(self, link: "_Link") -> None:
        context = (await self._upstream.credentials()).ssl
        assert context is not None
        target = urlsplit(self._upstream.server)
        await link.join(str(target.hostname), target.port or 443, context, self._on_request, self._on_response)

    async def _on_request(self, data: bytes) -> None:
        if match := REQUEST.match(data):
            request = b" ".join(match.groups()).decode()
            self.requests.append(request)
            if self.hold(request):
                await self._released.wait()
        await self._flowing.wait()

    async def _on_response(self, data: bytes) -> None:
        await self._flowing.wait()
        self.answers.extend(data)


class _Link:
    """A client connection, joined with one to the API server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._reader = reader
        self._writer = writer

    async def join(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        on_request: Callable[[bytes], Awaitable[None]],
        on_response: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            reader, writer = await _connect(host, port, context)
        except OSError:
            return self.reset()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(self._reader, writer, on_request))
                group.create_task(self._pump(reader, self._writer, on_response))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self.abort()

    def abort(self) -> None:
        self._writer.transport.abort()

    def reset(self) -> None:
        if not self._writer.is_closing():
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
            self._writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_data: Callable[[bytes], Awaitable[None]]
    ) -> None:
        while data := await reader.read(1 << 16):
            await self.flowing.wait()
            await on_data(data)
            if writer.is_closing():  # reset meanwhile; uvloop would raise
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionError("the other side has closed the connection")


async def _connect(host: str, port: int, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection, and leave none open if cancelled.

    If `open_connection` is cancelled after the handshake, uvloop waits for the server to close TLS.
    """
    opening = asyncio.create_task(asyncio.open_connection(host, port, ssl=context))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (await opening)[1].transport.abort()
        raise
