"""HTTP servers for health probes and metrics."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Self

from coder_k8s.http.server import Received, Reply, Routes, ServerConnection, serve
from coder_k8s.kube.addresses import Address
from coder_k8s.prometheus import CONTENT_TYPE, Registry

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Returns what is wrong; empty if the check passes."""


class CannotServe(Exception):
    """The server cannot listen on its address."""


class Server:
    """Serves some routes on one address within `async with`."""

    def __init__(self, name: str, address: Address, routes: Routes) -> None:
        self.name = name
        self.address = address
        self._routes = routes
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        try:
            self._server = await serve(*self.address, self._routes, self._connections)
        except OSError as error:
            raise CannotServe(f"cannot serve {self.name} on {self.address}: {error.strerror}") from error
        except UnicodeError as error:
            raise CannotServe(f"cannot serve {self.name} on {self.address}: the host name is not valid") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        log.info("serving %s", self.name, extra={"address": str(self.address)})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.transport.abort()
        await self._server.wait_closed()


def health_server(address: Address, alive: Mapping[str, Check], ready: Mapping[str, Check]) -> Server:
    """Create a server with `/healthz` for the liveness probe and `/readyz` for the readiness probe."""
    return Server("health", address, {"/healthz": _checked(alive, 500), "/readyz": _checked(ready, 503)})


def metrics_server(address: Address, registry: Registry) -> Server:
    """Create a server with `/metrics`, in the text format of Prometheus."""

    def metrics(_: Received) -> Reply:
        return Reply(registry.text().encode(), content_type=CONTENT_TYPE)

    return Server("metrics", address, {"/metrics": metrics})


def _checked(checks: Mapping[str, Check], failure: int) -> Callable[[Received], Reply]:
    def handle(request: Received) -> Reply:
        results = {name: check() for name, check in checks.items()}
        failed = any(results.values())
        if not failed and "verbose" not in request.query:
            return Reply(b"ok\n")
        lines = [f"[-] {name}: {error}" if error else f"[+] {name}: ok" for name, error in results.items()]
        status, summary = (failure, "failed") if failed else (200, "ok")
        return Reply("\n".join([*lines, summary, ""]).encode(), status)

    return handle
