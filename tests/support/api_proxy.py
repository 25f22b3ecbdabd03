"""A proxy before an API server that counts requests, holds some back, or goes dead."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml
from aiohttp import web

HOP_BY_HOP = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}
READS = {"GET", "HEAD"}


class Seen(NamedTuple):
    """A request that arrived."""

    method: str
    path: str


class ApiProxy:
    """Forwards what it is asked, with the credentials that it is given, as long as it is let."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.hold: Callable[[Seen], bool] = lambda _: False
        """Which requests are not answered until they are let go."""
        self._let_go = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def writes(self) -> list[Seen]:
        return [request for request in self.seen if request.method not in READS]

    def let_go(self) -> None:
        """Forward what was held back."""
        self._let_go.set()

    def stop(self) -> None:
        """Go dead: connections stay open, and nothing goes through any more."""
        self._flowing.clear()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """The same identity, by way of this proxy."""
        config = yaml.safe_load(original.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"] = {"server": self.url}
        path.write_text(yaml.safe_dump(config))
        return path

    @asynccontextmanager
    async def before(self, server: str, ca: Path) -> AsyncIterator["ApiProxy"]:
        """Stand before this API server."""
        trust = ssl.create_default_context(cafile=ca)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:

            async def forward(request: web.Request) -> web.StreamResponse:
                return await self._forward(request, session, server, trust)

            application = web.Application(client_max_size=2**24)
            application.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = "http://{}:{}".format(*runner.addresses[0][:2])
            try:
                yield self
            finally:
                self._let_go.set()
                self._flowing.set()
                await runner.cleanup()

    async def _forward(
        self, request: web.Request, session: aiohttp.ClientSession, server: str, trust: ssl.SSLContext
    ) -> web.StreamResponse:
        seen = Seen(request.method, request.path_qs)
        self.seen.append(seen)
        body = await request.read()
        if self.hold(seen):
            await self._let_go.wait()
        await self._flowing.wait()
        headers = _end_to_end(request.headers)
        async with session.request(
            request.method, server + request.raw_path, headers=headers, data=body or None, ssl=trust
        ) as answer:
            stream = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await stream.prepare(request)
            with suppress(ConnectionResetError):  # who asked has gone
                async for chunk in answer.content.iter_any():
                    await self._flowing.wait()
                    await stream.write(chunk)
            return stream


def _end_to_end(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
