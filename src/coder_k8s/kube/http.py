"""HTTP requests to the API server, with credentials, retries and typed errors."""

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

CONNECT_TIMEOUT = 4.0
"""Seconds. Shorter than the time between the renew deadline and the end of a Lease: the fence is called before."""
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=CONNECT_TIMEOUT)
MAX_ATTEMPTS = 4
MAX_RETRY_AFTER = 10.0
"""Seconds. A longer `Retry-After` is raised to the caller, so that no worker sleeps for long."""

MIN_RETRY_DELAY = 0.05
"""Seconds between two attempts, also if the server sends `Retry-After: 0`."""

CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
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

    It retries only requests that the server did not process: 429, 503 with `Retry-After`, and 401 once with fresh
    credentials. After a connection error a write may have succeeded. It raises `Unreachable`, and the caller must read
    the object before it writes again.
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
        """Send a request and return the body of its response; the fence is called before every attempt."""
        request = _Request(method, path, query, headers, body, fence)
        attempt = 1
        while True:
            try:
                async with self._response(request) as response:
                    return await response.read()
            except errors.Throttled as error:
                if attempt == MAX_ATTEMPTS or error.after > MAX_RETRY_AFTER:
                    raise
                await asyncio.sleep(max(error.after, MIN_RETRY_DELAY * attempt))
                attempt += 1

    async def stream(self, path: str, query: Query, headers: Query, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a streaming response; raise if none arrives for `idle_timeout` seconds."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        request = _Request("GET", path, query, headers, timeout=timeout)
        async with self._response(request) as response:
            started = time.monotonic()
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.SocketTimeoutError:
                raise
            except CONNECTION_ERRORS as error:
                message = str(self._unreachable(request, error))
                raise errors.StreamInterrupted(message, duration=time.monotonic() - started) from None

    @asynccontextmanager
    async def _response(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with await self._open(request) as response:
                try:
                    yield response
                except BaseException:
                    _abort(response)
                    raise
        except CONNECTION_ERRORS as error:
            raise self._unreachable(request, error) from None

    async def _open(self, request: _Request) -> aiohttp.ClientResponse:
        try:
            return await self._attempt(request, await self._config.credentials())
        except errors.Unauthorized:
            return await self._attempt(request, await self._config.credentials(renew=True))

    async def _attempt(self, request: _Request, credentials: Credentials) -> aiohttp.ClientResponse:
        """Send the request once and return a successful response with an unread body."""
        headers = request.headers
        if credentials.authorization:
            headers = {**headers, "Authorization": credentials.authorization}
        response = await self._session.request(
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
            middlewares=() if request.method == "GET" else (self._without_retry(request),),
        )
        self._metrics.requests.labels(str(response.status), request.method).inc()
        if response.status >= 300:
            async with response:
                raise errors.from_response(response.status, await response.read(), response.headers.get("Retry-After"))
        return response

    def _without_retry(self, request: _Request) -> aiohttp.ClientMiddlewareType:
        """Call the fence, and convert connection errors before aiohttp sees them: it would retry PUT and DELETE."""

        async def send(message: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            if request.fence:
                request.fence()
            try:
                return await handler(message)
            except CONNECTION_ERRORS as error:
                raise self._unreachable(request, error) from None

        return send

    def _unreachable(self, request: _Request, error: Exception) -> errors.Unreachable:
        self._metrics.requests.labels("<error>", request.method).inc()
        return errors.Unreachable(f"{request.method} {request.path}: {_describe(error)}")


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection at once; a TLS shutdown would keep it open."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _describe(error: Exception) -> str:
    """Describe a connection error, without aiohttp's text where it may contain the password of a proxy."""
    match error:
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {error.os_error}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy returned {error.status} {error.message}"
        case OSError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return str(error) or type(error).__name__
        case _:
            return type(error).__name__
