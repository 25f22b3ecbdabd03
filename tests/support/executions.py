"""The operator as a process, and somebody on its way to its servers who kills it at a chosen kind of request."""

import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process
from tests.support import eventually
from tests.support.crashes import Pods
from tests.support.rotations import Site

PATIENCE = 40.0
BESIDE = ("PATCH codercontrolplanes/*/status", "PATCH events/*")
"""Not about provisioners, or a matter of time: the second of two events that say the same."""
HOP_BY_HOP = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}
NAMES = (
    (re.compile(r"^/apis?/(.*/)?namespaces/[^/]+/([^/]+)/[^/]+"), r"\2/*"),
    (re.compile(r"^/apis?/(.*/)?namespaces/[^/]+/([^/]+)"), r"\2"),
    (re.compile(r"organizations/[^/]+"), "organizations/*"),
    (re.compile(r"provisionerkeys/[^/]+"), "provisionerkeys/*"),
)


def kind_of(method: str, path: str) -> str:
    """A request without the names in it, such as `PATCH coderprovisioners/*/status`."""
    for pattern, kind in NAMES:
        path = pattern.sub(kind, path)
    return f"{method} {path}"


class Execution:
    """Forwards the requests of an operator, and kills it right before or right after the first of a kind.

    Right after means when the server has answered, and before the operator hears of that.
    """

    def __init__(self, site: Site, cluster: ClusterAccess, kubeconfig: Path, folder: Path) -> None:
        self.site = site
        self.pods = Pods(site)
        self.seen: set[str] = set()
        """The kinds of request to coderd, and of writes to Kubernetes about provisioners."""
        self._cluster = cluster
        self._identity = kubeconfig
        self._folder = folder
        self._routes: list[str] = []
        self._kubeconfig = folder / "forwarded"
        self._victim: Process
        self._chosen = ""
        self._before = False
        self._lives = 0

    @asynccontextmanager
    async def ready(self) -> AsyncIterator["Execution"]:
        """Stand before the API server and every coderd."""
        async with AsyncExitStack() as stack:
            trust = ssl.create_default_context(cafile=self._cluster.ca_path)
            port = await stack.enter_async_context(self._before_server(self._cluster.url, trust))
            config = yaml.safe_load(self._identity.read_text())
            for each in config["clusters"]:
                each["cluster"] = {"server": f"http://127.0.0.1:{port}"}
            self._kubeconfig.write_text(yaml.safe_dump(config))
            for service, coderd in self.site.routes.items():
                port = await stack.enter_async_context(self._before_server(f"http://127.0.0.1:{coderd.port}", None))
                self._routes.append(f"{service.host}:{service.port}=127.0.0.1:{port}")
            self.start()
            try:
                yield self
            finally:
                self._victim.kill()

    def start(self) -> None:
        """Have an operator at work."""
        self._lives += 1
        flags = ["--kubeconfig", str(self._kubeconfig), "--watch-namespaces", self.site.namespace]
        flags += ["--coderd-connect-to", ",".join(self._routes), "--no-leader-elect"]
        flags += ["--health-probe-bind-address", "0", "--metrics-bind-address", "0"]
        command = [sys.executable, "-m", "coder_k8s", "controller", *flags]
        self._victim = Process(command, self._folder / f"operator-{self._lives}.log")
        self._victim.start()

    def choose(self, kind: str, *, before: bool) -> None:
        """Kill the operator at the next request of this kind."""
        self._chosen, self._before = kind, before

    async def done(self) -> bool:
        """Wait until the operator is dead, or has come to rest without such a request; whether it is dead."""

        async def over() -> bool:
            await self.pods.move_on()
            return not self._victim.running or not await self._flaws()

        await eventually(over, PATIENCE)
        self._chosen = ""
        return not self._victim.running

    async def rest(self) -> None:
        """Wait until all is as it must be."""

        async def rests() -> bool:
            await self.pods.move_on()
            flaws = await self._flaws()
            assert not flaws, flaws
            return True

        await eventually(rests, PATIENCE)

    async def _flaws(self) -> list[str]:
        """What is not as it must be, but for what is seen only some time later: that all daemons are there."""
        return [flaw for flaw in await self.site.flaws() if not flaw.startswith("Ready ")]

    def _kill(self) -> web.Response:
        self._victim.kill()
        self._chosen = ""
        return web.Response(status=503)

    @asynccontextmanager
    async def _before_server(self, url: str, trust: ssl.SSLContext | None) -> AsyncIterator[int]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False) as session:

            async def forward(request: web.Request) -> web.StreamResponse:
                return await self._forward(request, session, url, trust)

            application = web.Application(client_max_size=2**24)
            application.router.add_route("*", "/{path:.*}", forward)
            # The watches of an operator that is dead must not hold connections to the server.
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            try:
                yield runner.addresses[0][1]
            finally:
                await runner.cleanup()

    async def _forward(
        self, request: web.Request, session: aiohttp.ClientSession, url: str, trust: ssl.SSLContext | None
    ) -> web.StreamResponse:
        kind = kind_of(request.method, request.path)
        if trust is None or (request.method != "GET" and kind not in BESIDE):
            self.seen.add(kind)
        body = await request.read()
        if kind == self._chosen and self._before:
            return self._kill()
        async with session.request(
            request.method, url + request.raw_path, headers=_kept(request.headers), data=body or None, ssl=trust or True
        ) as answer:
            if kind == self._chosen:
                await answer.read()
                return self._kill()
            stream = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            try:
                await stream.prepare(request)
                async for chunk in answer.content.iter_any():
                    await stream.write(chunk)
            except ConnectionResetError:
                pass  # who asked has gone
            finally:
                _hang_up(answer)
            return stream


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    """End an answer that nobody hears to its end, without a farewell that might outlive the test."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP - {"content-encoding"}}
