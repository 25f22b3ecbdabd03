"""Requests to an API server, with credentials, patience and typed errors."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Self

import aiohttp

from coder_k8s.kube import errors
from coder_k8s.kube.config import Config, Credentials
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.sockets import Sockets

CONNECT = 4.0
"""A write that passed the fence may still wait so long for a connection: less than a Lease outlives its renewal."""
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=CONNECT)
TRIES = 4
PATIENCE = 10.0
"""A longer `Retry-After` than this is the caller's business: a worker must not sleep it away."""

MIN_RETRY_DELAY = 0.05
"""The least wait between two tries, also for a server that says 0."""

BROKEN = (aiohttp.ClientError, OSError)
Query = Mapping[str, str]
Fence = Callable[[], None]


class _Request(NamedTuple):
    method: str
    path: str
    query: Query
    headers: Query
    body: bytes | None = None
    fence: Fence | None = None
    timeout: aiohttp.ClientTimeout = TIMEOUT


class Http:
    """Sends requests to one API server.

    Only what the server says it did not process is sent again here: 429, 503 with `Retry-After`, and a 401 once with
    fresh credentials. After a broken connection nobody knows what happened, so that goes up as `Unreachable` to
    somebody who looks before writing again.
    """

    def __init__(self, config: Config, user_agent: str, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._sockets = Sockets()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, socket_factory=self._sockets.open),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent},
            timeout=TIMEOUT,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._sockets:
            await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Query,
        body: bytes | None = None,
        fence: Fence | None = None,
    ) -> bytes:
        """The body of the answer; the fence is asked before every try whether it may still be sent."""
        request = _Request(method, path, query, headers, body, fence)
        tries = 1
        while True:
            try:
                async with self._answer(request) as answer:
                    return await answer.read()
            except errors.Throttled as refusal:
                if tries == TRIES or refusal.after > PATIENCE:
                    raise
                await asyncio.sleep(max(refusal.after, MIN_RETRY_DELAY * tries))
                tries += 1

    async def stream(self, path: str, query: Query, headers: Query, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """The chunks of an endless answer; it is dead when it says nothing for longer than `idle_timeout`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=idle_timeout)
        request = _Request("GET", path, query, headers, timeout=timeout)
        async with self._answer(request) as answer:
            begun = time.monotonic()
            try:
                async for chunk in answer.content.iter_any():
                    yield chunk
            except aiohttp.SocketTimeoutError:
                raise
            except BROKEN as trouble:
                cut = self._unreachable(request, trouble)
                raise errors.StreamInterrupted(str(cut), duration=time.monotonic() - begun) from None

    @asynccontextmanager
    async def _answer(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with await self._open(request) as answer:
                try:
                    yield answer
                except BaseException:
                    _hang_up(answer)
                    raise
        except BROKEN as trouble:
            raise self._unreachable(request, trouble) from None

    async def _open(self, request: _Request) -> aiohttp.ClientResponse:
        try:
            return await self._try(request, await self._config.credentials())
        except errors.Unauthorized:
            return await self._try(request, await self._config.credentials(renew=True))

    async def _try(self, request: _Request, credentials: Credentials) -> aiohttp.ClientResponse:
        """The beginning of an answer that is no refusal."""
        headers = request.headers
        if credentials.authorization:
            headers = {**headers, "Authorization": credentials.authorization}
        answer = await self._session.request(
            request.method,
            self._config.server + request.path,
            params=request.query,
            headers=headers,
            data=request.body,
            ssl=credentials.ssl or True,
            proxy=self._config.proxy,
            proxy_headers=self._config.proxy_headers,
            server_hostname=self._config.server_name,
            allow_redirects=False,
            timeout=request.timeout,
            middlewares=() if request.method == "GET" else (self._once(request),),
        )
        self._metrics.requests.labels(str(answer.status), request.method).inc()
        if answer.status >= 300:
            async with answer:
                raise errors.from_response(answer.status, await answer.read(), answer.headers.get("Retry-After"))
        return answer

    def _once(self, request: _Request) -> aiohttp.ClientMiddlewareType:
        """Asks the fence, and hides a broken connection from the library: it would send PUT and DELETE again itself."""

        async def send(message: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            if request.fence:
                request.fence()
            try:
                return await handler(message)
            except BROKEN as trouble:
                raise self._unreachable(request, trouble) from None

        return send

    def _unreachable(self, request: _Request, trouble: Exception) -> errors.Unreachable:
        self._metrics.requests.labels("<error>", request.method).inc()
        return errors.Unreachable(f"{request.method} {request.path}: {_words(trouble)}")


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    """Give up an answer at once: a polite farewell by TLS would keep the connection."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _words(trouble: Exception) -> str:
    """What happened, without the library's own words where they may hold the password of a proxy."""
    match trouble:
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {trouble.host}:{trouble.port}: {trouble.os_error}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {trouble.status} {trouble.message}"
        case OSError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return str(trouble) or type(trouble).__name__
        case _:
            return type(trouble).__name__
