"""HTTP servers for health probes and metrics."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from coder_k8s.kube.addresses import Address

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Returns what is wrong; empty if the check passes."""

Handler = Callable[[web.Request], Awaitable[web.Response]]


class CannotServe(Exception):
    """The server cannot listen on its address."""


class Server:
    """Serves some routes on one address within `async with`."""

    def __init__(self, name: str, address: Address, routes: list[web.RouteDef]) -> None:
        self.name = name
        self.address = address
        application = web.Application()
        application.add_routes(routes)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.address.host, self.address.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotServe(f"cannot serve {self.name} on {self.address}: {error.strerror}") from error
        host, port = self._runner.addresses[0][:2]
        self.address = Address(host, port)
        log.info("serving %s", self.name, extra={"address": str(self.address)})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def health_server(address: Address, alive: Mapping[str, Check], ready: Mapping[str, Check]) -> Server:
    """Create a server with `/healthz` for the liveness probe and `/readyz` for the readiness probe."""
    routes = [web.get("/healthz", _checked(alive, 500)), web.get("/readyz", _checked(ready, 503))]
    return Server("health", address, routes)


def metrics_server(address: Address, registry: CollectorRegistry) -> Server:
    """Create a server with `/metrics`, in the Prometheus format that the scraper prefers."""

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return Server("metrics", address, [web.get("/metrics", metrics)])


def _checked(checks: Mapping[str, Check], failure: int) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        results = {name: check() for name, check in checks.items()}
        failed = any(results.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok\n")
        lines = [f"[-] {name}: {error}" if error else f"[+] {name}: ok" for name, error in results.items()]
        status, summary = (failure, "failed") if failed else (200, "ok")
        return web.Response(status=status, text="\n".join([*lines, summary, ""]))

    return handle
