"""Intercepts every request of an operator in this process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from coder_k8s.coderd.connections import Connections, Endpoint, Limits, Response
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Fence, Http, Query
from coder_k8s.kube.metrics import Metrics

T = TypeVar("T")


class Request(NamedTuple):
    """A request; `target` is a path at the API server, or a URL at coderd."""

    method: str
    target: str
    dry_run: bool = False

    @property
    def is_kubernetes(self) -> bool:
        return self.target.startswith("/")

    @property
    def is_write(self) -> bool:
        """Whether it is a write to the API server, including dry runs."""
        return self.is_kubernetes and self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.target}{'?dryRun' if self.dry_run else ''}"


class Interceptor:
    """Records the requests of an operator and sends them, until the operator crashes.

    A request of a crashed operator blocks forever. Only a task that is being cancelled ends; requests of its
    cleanup are not sent.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.crashed = asyncio.Event()

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        await self._block_if_crashed()
        self.requests.append(request)
        answer = await send()
        await self._block_if_crashed()
        return answer

    async def _block_if_crashed(self) -> None:
        if not self.crashed.is_set():
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        await asyncio.get_running_loop().create_future()


class InterceptedHttp(Http):
    """Requests to the API server; watches are not intercepted."""

    def __init__(self, kubeconfig: Path, metrics: Metrics, interceptor: Interceptor) -> None:
        super().__init__(load(kubeconfig), "test", metrics)
        self._interceptor = interceptor

    async def send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Query,
        body: bytes | None = None,
        fence: Fence | None = None,
    ) -> bytes:
        send, request = super().send, Request(method, path, "dryRun" in query)
        return await self._interceptor.intercept(request, lambda: send(method, path, query, headers, body, fence))


class InterceptedConnections(Connections):
    """Requests to coderd."""

    def __init__(
        self, routes: Mapping[Endpoint, Endpoint] | None, limits: Limits | None, interceptor: Interceptor
    ) -> None:
        super().__init__(routes, limits)
        self._interceptor = interceptor

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        exchange, request = super().exchange, Request(method, url)
        return await self._interceptor.intercept(request, lambda: exchange(method, url, headers, body))
