"""HTTP proxies in front of an API server or coderd that fail, delay or change requests."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.sockets import Sockets

HOP_BY_HOP = {"connection", "content-length", "host", "transfer-encoding"}
WAYS = ("drop", "swap", "delay", "twice", "cut")
EVERYTHING = "*"
DELETED = b'{"type":"DELETED"'
BOOKMARK = b'{"type":"BOOKMARK"'


@asynccontextmanager
async def session_without_timeout() -> AsyncIterator[aiohttp.ClientSession]:
    """A session without timeouts that closes its connections at the end."""
    async with (
        Sockets() as sockets,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=sockets.open),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as session,
    ):
        yield session


class Forwarder:
    """Forwards requests unchanged; subclasses intercept requests in `handle` and watch events in `events`."""

    def __init__(self, server: ClusterAccess | str) -> None:
        """Forward to a cluster, or to the URL of a server without TLS."""
        self.port = 0
        self._url = server if isinstance(server, str) else server.url
        self._tls = True if isinstance(server, str) else ssl.create_default_context(cafile=server.ca_path)
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(session_without_timeout())
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self.handle)
        # Without handler cancellation, watches of a stopped operator would keep connections to the server open.
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """Write a kubeconfig for the same identity through this proxy."""
        return kubeconfig_through(self.port, original, path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.forward(request, request.raw_path)

    def events(self, request: web.Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events that a watch receives, line by line."""
        return lines

    async def forward(self, request: web.Request, path: str) -> web.StreamResponse:
        async with self.send(request, path) as response:
            kept = {name: value for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP}
            stream = web.StreamResponse(status=response.status, headers=kept)
            try:
                await stream.prepare(request)
                chunks = response.content if not is_watch(request) else self.events(request, aiter(response.content))
                async for chunk in chunks:
                    await stream.write(chunk)
            except (ConnectionError, aiohttp.ClientPayloadError):
                hang_up(request)
            return stream

    @asynccontextmanager
    async def send(self, request: web.Request, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Forward a request and yield the response."""
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        if is_watch(request):
            headers["Accept-Encoding"] = "identity"
        async with self._session.request(
            request.method, self._url + path, headers=headers, data=body or None, ssl=self._tls
        ) as response:
            yield response


def kubeconfig_through(port: int, original: Path, path: Path) -> Path:
    """Write a kubeconfig for the same identity whose server is a local port, without TLS."""
    config = yaml.safe_load(original.read_text())
    for each in config["clusters"]:
        each["cluster"] = {"server": f"http://127.0.0.1:{port}"}
    path.write_text(yaml.safe_dump(config))
    return path


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "true"


def is_list(request: web.Request) -> bool:
    return "limit" in request.query


def _subject(request: web.Request) -> tuple[str, ...]:
    """What identifies a list or watch: path, selector and content type."""
    content = request.headers.get("Accept", "").replace("MetadataList", "Metadata")
    return request.path, request.query.get("labelSelector", ""), content


def hang_up(request: web.Request) -> None:
    """Abort the connection."""
    if request.transport is not None:
        request.transport.abort()


class StaleView(Forwarder):
    """Serves lists at an old version and no watch events until `catch_up`, of some kinds or of all.

    Writes are forwarded.
    """

    def __init__(self, cluster: ClusterAccess, version: str) -> None:
        super().__init__(cluster)
        self._version = version
        self._present: set[str] = set()
        self._changed = asyncio.Condition()

    async def catch_up(self, *plurals: str) -> None:
        async with self._changed:
            self._present |= set(plurals or (EVERYTHING,))
            self._changed.notify_all()

    def _is_present(self, request: web.Request) -> bool:
        return not self._present.isdisjoint((EVERYTHING, request.path.rpartition("/")[2]))

    async def wait_present(self, request: web.Request) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_present(request))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if is_watch(request):
            await self.wait_present(request)
        elif is_list(request) and not self._is_present(request):
            then = {"resourceVersion": self._version, "resourceVersionMatch": "Exact"}
            return await self.forward(request, str(request.rel_url.update_query(then)))
        return await super().handle(request)


class FailingServer(Forwarder):
    """Fails a share of all requests: with 429, 500 or 503, a closed connection before or after, or no response."""

    def __init__(self, cluster: ClusterAccess, rng: Random, share: float, hang: float = 3.0) -> None:
        super().__init__(cluster)
        self.share = share
        self.failed = 0
        self._rng = rng
        self._hang = hang

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self._rng.random() >= self.share:
            return await super().handle(request)
        self.failed += 1
        match self._rng.choice(("throttled", "broken", "unavailable", "cut", "after", "silent")):
            case "throttled":
                return web.Response(status=429, headers={"Retry-After": "1"})
            case "broken":
                return web.Response(status=500, text="etcdserver: request timed out")
            case "unavailable":
                return web.Response(status=503, text="<html>no healthy upstream</html>", content_type="text/html")
            case "after" if not is_watch(request):  # the request is executed and its response is lost
                await self.forward(request, request.raw_path)
            case "silent":
                await asyncio.sleep(self._hang)
        hang_up(request)
        return web.Response(status=504)


class UnreliableWatches(Forwarder):
    """Delivers some events of watches late, twice, in another order or not at all, and cuts watches at random.

    A real API server sends every event of a watch, in order. If it has lost some, it responds with `Gone` to watches
    from an earlier version. So does this proxy: after a dropped event it cuts the watch, and responds with `Gone` until
    the next list. Reordered changes need no `Gone`, because their versions show which is newer. A deleted object has no
    newer version, so a reordered deletion counts as lost.
    """

    def __init__(self, cluster: ClusterAccess, rng: Random, share: float = 0.2, pause: float = 0.3) -> None:
        super().__init__(cluster)
        self.share = share
        self.ways: Sequence[str] = WAYS
        self.done: Counter[str] = Counter()
        self._rng = rng
        self._pause = pause
        self._lost: set[tuple[str, ...]] = set()
        self._watching: dict[int, web.Request] = {}

    def cut(self, *, lost: bool = True) -> None:
        """Cut every watch; held events are lost."""
        for request in self._watching.values():
            if lost:
                self._lost.add(_subject(request))
            hang_up(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        subject = _subject(request)
        if is_list(request):
            self._lost.discard(subject)
        if is_watch(request) and subject in self._lost:
            self.done["gone"] += 1
            gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "lost events"}
            return web.json_response(gone, status=410)
        try:
            return await super().handle(request)
        finally:
            self._watching.pop(id(request), None)

    async def events(self, request: web.Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        held, last = b"", False
        self._watching[id(request)] = request
        async for line in lines:
            what = self._choose()
            self.done[what] += 1
            if what == "drop":
                self._lost.add(_subject(request))
                last = True
                continue
            if what == "swap" and not held and not line.startswith(BOOKMARK):  # rare: do not hold them
                held = line
                continue
            if what == "delay":
                await asyncio.sleep(self._rng.uniform(0, self._pause))
            if held and any(each.startswith(DELETED) for each in (line, held)):
                self._lost.add(_subject(request))
                last = True
            yield (line * 2 if what == "twice" else line) + held
            held = b""
            if last or what == "cut":
                break
        raise ConnectionError("cut off")

    def _choose(self) -> str:
        return self._rng.choice(self.ways) if self._rng.random() < self.share else "deliver"


class UnreliableServer(UnreliableWatches):
    """Also fails requests with 429, 500 or 503."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self._rng.random() < self.share / 2:
            self.done["refuse"] += 1
            return web.Response(status=self._rng.choice((429, 500, 503)), headers={"Retry-After": "1"})
        return await super().handle(request)
