"""Health and metrics over HTTP."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from coder_k8s.kube.addresses import Address

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Says what is wrong; nothing when all is well."""

Handler = Callable[[web.Request], Awaitable[web.Response]]


class CannotServe(Exception):
    """The address cannot be listened on."""


class Server:
    """A few routes on one address, served between `async with` and its end."""

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
        except OSError as trouble:
            await self._runner.cleanup()
            raise CannotServe(f"cannot serve {self.name} on {self.address}: {trouble.strerror}") from trouble
        host, port = self._runner.addresses[0][:2]
        self.address = Address(host, port)
        log.info("serving %s", self.name, extra={"address": str(self.address)})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def health_server(address: Address, alive: Mapping[str, Check], ready: Mapping[str, Check]) -> Server:
    """`/healthz` for the liveness probe and `/readyz` for the readiness probe."""
    routes = [web.get("/healthz", _checked(alive, 500)), web.get("/readyz", _checked(ready, 503))]
    return Server("health", address, routes)


def metrics_server(address: Address, registry: CollectorRegistry) -> Server:
    """`/metrics` in whichever of Prometheus' formats the scraper prefers."""

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return Server("metrics", address, [web.get("/metrics", metrics)])


def _checked(checks: Mapping[str, Check], failure: int) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        verdicts = {name: check() for name, check in checks.items()}
        wrong = any(verdicts.values())
        if not wrong and "verbose" not in request.query:
            return web.Response(text="ok\n")
        lines = [f"[-] {name}: {trouble}" if trouble else f"[+] {name}: ok" for name, trouble in verdicts.items()]
        return web.Response(status=failure if wrong else 200, text="\n".join([*lines, "failed" if wrong else "ok", ""]))

    return answer
