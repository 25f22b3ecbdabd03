"""The one place that knows the HTTP library: requests with credentials, patience and typed errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self

import aiohttp

from coder_k8s.kube import errors
from coder_k8s.kube.config import Config
from coder_k8s.kube.metrics import Metrics

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
TRIES = 4
PATIENCE = 10.0
"""A longer `Retry-After` than this is the caller's business: a worker must not sleep it away."""

Query = Mapping[str, str]
Sleep = Callable[[float], "asyncio.Future[None]"]


class Http:
    """Sends requests to one API server.

    Only what the server says it did not process is sent again here: 429, 503 with `Retry-After`, and a 401 once with
    fresh credentials. After a broken connection nobody knows what happened, so that goes up as `Unreachable` to
    somebody who looks before writing again.
    """

    def __init__(self, config: Config, user_agent: str, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent},
            timeout=TIMEOUT,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Query,
        body: bytes | None = None,
        fence: Callable[[], None] | None = None,
    ) -> bytes:
        """The body of the answer; the fence is asked before every try whether it may still be sent."""
        tries, renew = 1, False
        while True:
            try:
                if fence:
                    fence()
                async with self._answer(method, path, query, headers, body, renew=renew) as answer:
                    return await answer.read()
            except errors.Unauthorized:
                if renew:
                    raise
                renew = True
            except errors.Throttled as refusal:
                if tries == TRIES or refusal.after > PATIENCE:
                    raise
                tries += 1
                await asyncio.sleep(refusal.after)

    async def stream(self, path: str, query: Query, headers: Query, silence: float) -> AsyncIterator[bytes]:
        """The chunks of an endless answer; it is dead when it says nothing for longer than `silence`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        async with self._answer("GET", path, query, headers, timeout=timeout) as answer:
            async for chunk in answer.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Query,
        body: bytes | None = None,
        *,
        renew: bool = False,
        timeout: aiohttp.ClientTimeout = TIMEOUT,  # noqa: ASYNC109 - the library's own kind, not seconds
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credentials = await self._config.credentials(renew=renew)
        if credentials.authorization:
            headers = {**headers, "Authorization": credentials.authorization}
        try:
            async with self._session.request(
                method,
                self._config.server + path,
                params=query,
                headers=headers,
                data=body,
                ssl=credentials.ssl or True,
                proxy=self._config.proxy,
                server_hostname=self._config.server_name,
                allow_redirects=False,
                timeout=timeout,
            ) as answer:
                self._metrics.requests.labels(str(answer.status), method).inc()
                if not answer.ok or answer.status >= 300:
                    raise errors.of(answer.status, await answer.read(), answer.headers.get("Retry-After"))
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as trouble:
            self._metrics.requests.labels("<error>", method).inc()
            raise errors.Unreachable(f"{method} {path}: {trouble or type(trouble).__name__}") from trouble
