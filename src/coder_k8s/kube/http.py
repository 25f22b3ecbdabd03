"""HTTP requests to the API server, with credentials, retries and typed errors."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property, lru_cache
from typing import Self
from urllib.parse import urlencode

import msgspec

from coder_k8s.http.connecting import Proxy, Route
from coder_k8s.http.connection import Connection, Response
from coder_k8s.http.errors import HttpError, IdleTimeout
from coder_k8s.http.pool import Pool, Request, encode_headers
from coder_k8s.http.urls import Target, parse_url
from coder_k8s.kube import errors
from coder_k8s.kube.batching import Batching
from coder_k8s.kube.config import Config
from coder_k8s.kube.credentials import Confidential, Credentials
from coder_k8s.kube.metrics import Metrics

CONNECT_TIMEOUT = 4.0
"""Seconds for a TCP connection."""
TIMEOUT = 30.0
"""Seconds for a request and its response."""
MAX_ATTEMPTS = 4
MAX_RETRY_AFTER = 10.0
"""Seconds. A longer `Retry-After` is raised to the caller, so that no worker sleeps for long."""

MIN_RETRY_DELAY = 0.05
"""Seconds between two attempts, also if the server sends `Retry-After: 0`."""

MAX_HEADERS = 32
"""Combinations of headers that are kept encoded; the operator has about ten."""

CONNECTION_ERRORS = (HttpError, OSError)
Query = Mapping[str, str]
Fence = Callable[[], None]


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Query
    headers: Query
    body: bytes | None = None
    fence: Fence | None = None


class _Access(Confidential, frozen=True):
    """What all requests with the same credentials have in common."""

    credentials: Credentials
    route: Route
    headers: dict[tuple[tuple[str, str], ...], bytes] = msgspec.field(default_factory=dict)
    """The encoded headers, by those that a kind of request adds; there are few."""


class Http:
    """Sends requests to one API server.

    It retries only requests that the server did not process: 429, 503 with `Retry-After`, and 401 once with fresh
    credentials. After a connection error a write may have succeeded. It raises `Unreachable`, and the caller must read
    the object before it writes again.
    """

    def __init__(self, config: Config, user_agent: str, metrics: Metrics, batching: Batching | None = None) -> None:
        self._config = config
        self._on_message = batching.count if batching else _ignore
        self._counter = metrics.requests.labels
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "gzip"}
        self._access: _Access | None = None
        self._pool = Pool(connect_timeout=CONNECT_TIMEOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._pool:
            pass

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
                return await self._attempt(request)
            except errors.Throttled as error:
                if attempt == MAX_ATTEMPTS or error.after > MAX_RETRY_AFTER:
                    raise
                await asyncio.sleep(max(error.after, MIN_RETRY_DELAY * attempt))
                attempt += 1

    async def exchange(self, method: str, path: str, headers: Query, body: bytes | None = None) -> Response:
        """Send a request once, and return the response of any status: it may be from a server behind the API server."""
        request = _Request(method, path, {}, headers, body)
        try:
            return await self._pool.exchange(*self._addressed(request, await self._config.credentials()), TIMEOUT)
        except CONNECTION_ERRORS as error:
            raise self._unreachable(request, error) from None

    async def stream(self, path: str, query: Query, headers: Query, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a streaming response; raise if none arrives for `idle_timeout` seconds.

        A watch event for a write is cheap if the response is known: it contains nothing new.
        """
        request = _Request("GET", path, query, headers)
        async with AsyncExitStack() as stack:
            connection = await self._open(stack, request, idle_timeout)
            started = time.monotonic()
            try:
                async for part in connection.parts(idle_timeout):
                    self._on_message()
                    await asyncio.sleep(0)  # handle the responses to writes that arrived with it first
                    yield part
            except IdleTimeout as error:
                raise errors.StreamIdle(f"GET {path}: {error}") from None
            except CONNECTION_ERRORS as error:
                message = str(self._unreachable(request, error))
                raise errors.StreamInterrupted(message, duration=time.monotonic() - started) from None

    async def _attempt(self, request: _Request) -> bytes:
        """Send the request, a second time if the server rejects the credentials."""
        try:
            credentials = self._config.current_credentials or await self._config.credentials()
            return await self._exchange(request, credentials)
        except errors.Unauthorized:
            return await self._exchange(request, await self._config.credentials(renew=True))

    async def _exchange(self, request: _Request, credentials: Credentials) -> bytes:
        started = time.monotonic()
        try:
            response = await self._pool.exchange(*self._addressed(request, credentials), TIMEOUT)
        except CONNECTION_ERRORS as error:
            raise self._unreachable(request, error) from None
        self._on_message(started)
        self._check(request, response)
        return response.body

    async def _open(self, stack: AsyncExitStack, request: _Request, seconds: float) -> Connection:
        """Send the request and wait for the headers of a successful response, also with fresh credentials."""
        try:
            return await self._enter(stack, request, await self._config.credentials(), seconds)
        except errors.Unauthorized:
            return await self._enter(stack, request, await self._config.credentials(renew=True), seconds)

    async def _enter(
        self, stack: AsyncExitStack, request: _Request, credentials: Credentials, seconds: float
    ) -> Connection:
        try:
            opened = self._pool.stream(*self._addressed(request, credentials), seconds)
            status, connection = await stack.enter_async_context(opened)
            if status < 300:
                self._counter(str(status), request.method).inc()
                return connection
            response = await connection.read(asyncio.get_running_loop().time() + seconds)
        except CONNECTION_ERRORS as error:
            raise self._unreachable(request, error, seconds) from None
        self._check(request, response)
        raise AssertionError("unreachable: the status is an error")

    def _addressed(self, request: _Request, credentials: Credentials) -> tuple[Route, Request]:
        """How to reach the server, and what to send."""
        if self._access is None or self._access.credentials is not credentials:
            route = Route(self._server.origin, credentials.ssl, self._config.server_name, self._proxy)
            self._access = _Access(credentials, route)
        access, path = self._access, self._server.path.rstrip("/") + request.path
        if request.query:
            path += "?" + _encoded(tuple(request.query.items()))
        key = tuple(request.headers.items())
        if (headers := access.headers.get(key)) is None:
            authorization = {"Authorization": credentials.authorization} if credentials.authorization else {}
            headers = encode_headers({**self._headers, **request.headers, **authorization})
            if len(access.headers) < MAX_HEADERS:
                access.headers[key] = headers
        return access.route, Request(request.method, path, headers, request.body, request.fence)

    @cached_property
    def _server(self) -> Target:
        return parse_url(self._config.server)

    @cached_property
    def _proxy(self) -> Proxy | None:
        if self._config.proxy is None:
            return None
        return Proxy(parse_url(self._config.proxy).origin, tuple(self._config.proxy_headers.items()))

    def _check(self, request: _Request, response: Response) -> None:
        """Count the response, and raise the error that it is."""
        self._counter(str(response.status), request.method).inc()
        if response.status >= 300:
            raise errors.from_response(response.status, response.body, response.headers.get("retry-after"))

    def _unreachable(self, request: _Request, error: Exception, seconds: float = TIMEOUT) -> errors.Unreachable:
        self._counter("<error>", request.method).inc()
        return errors.Unreachable(f"{request.method} {request.path}: {describe(error, seconds)}")


def _ignore(sent: float | None = None) -> None:
    """Without batching, messages are not counted."""


@lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return the query as in a URL; most requests have the same few."""
    return urlencode(query)


def describe(error: Exception, seconds: float = TIMEOUT) -> str:
    """Describe a connection error, after a timeout of `seconds`."""
    if isinstance(error, TimeoutError):
        return f"no response within {seconds:g} s"
    return str(error) or type(error).__name__
