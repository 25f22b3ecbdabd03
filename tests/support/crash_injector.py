"""The operator as a process, and somebody on its way to its servers who kills it at a chosen request."""

import re
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process, ProcessFailed, tail
from tests.support import eventually
from tests.support.crashes import Pods
from tests.support.forwarding import endless_session
from tests.support.rotations import RotationNamespace

PATIENCE = 40.0
BESIDE = ("PATCH codercontrolplanes/*/status", "PATCH events/*")
"""Not about provisioners, or a matter of time: the second of two events that say the same."""
HOP_BY_HOP = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}
NAMES = (
    (re.compile(r"^/apis?/(.*/)?namespaces/[^/]+/([^/]+)/[^/]+"), r"\2/*"),
    (re.compile(r"^/apis?/(.*/)?namespaces/[^/]+/([^/]+)"), r"\2"),
    (re.compile(r"organizations/[^/]+"), "organizations/*"),
    (re.compile(r"provisionerkeys/[^/]+"), "provisionerkeys/*"),
    (re.compile(r"workspaceproxies/[^/]+"), "workspaceproxies/*"),
)


def kind_of(method: str, path: str) -> str:
    """A request without the names in it, such as `PATCH coderprovisioners/*/status`."""
    for pattern, kind in NAMES:
        path = pattern.sub(kind, path)
    return f"{method} {path}"


class CrashInjector:
    """Forwards the requests of operators, and kills the one at work right before or right after a chosen request.

    Right after means when the server has answered, and before the operator hears of that.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        kubeconfig: Path,
        folder: Path,
        routes: Mapping[Endpoint, Endpoint],
        beside: Sequence[str],
        *flags: str,
    ) -> None:
        self.seen: list[str] = []
        """The requests to coderd, and the writes to Kubernetes but for those beside, by their kind."""
        self._cluster = cluster
        self._identity = kubeconfig
        self._folder = folder
        self._kubeconfig = folder / "forwarded"
        self._routes = routes
        self._beside = beside
        flags = (*flags, "--kubeconfig", str(self._kubeconfig), "--no-leader-elect")
        flags = (*flags, "--health-probe-bind-address=0", "--metrics-bind-address=0", "--log-level=debug")
        self._command = [sys.executable, "-m", "coder_k8s", "controller", *flags]
        self._victim = Process(self._command, folder / "operator.log")
        self._chosen: Callable[[str], bool] = _nothing
        self._before = False
        self._killed = False
        self._lives = 0

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Self]:
        """Stand before the API server and every coderd."""
        async with AsyncExitStack() as stack:
            trust = ssl.create_default_context(cafile=self._cluster.ca_path)
            port = await stack.enter_async_context(self._before_server(self._cluster.url, trust))
            config = yaml.safe_load(self._identity.read_text())
            for each in config["clusters"]:
                each["cluster"] = {"server": f"http://127.0.0.1:{port}"}
            self._kubeconfig.write_text(yaml.safe_dump(config))
            routes = []
            for service, coderd in self._routes.items():
                port = await stack.enter_async_context(self._before_server(f"http://127.0.0.1:{coderd.port}", None))
                routes.append(f"{service.host}:{service.port}=127.0.0.1:{port}")
            self._command.append(f"--coderd-connect-to={','.join(routes)}")
            try:
                yield self
            finally:
                self.stop()

    def killed(self) -> bool:
        """Whether the operator is dead; none may end in another way."""
        if not (self._killed or self._victim.running):
            raise ProcessFailed(tail(self._victim.log))
        return self._killed

    def start(self) -> None:
        """Have an operator at work."""
        self._killed = False
        self._lives += 1
        self._victim = Process(self._command, self._folder / f"operator-{self._lives}.log")
        self._victim.start()

    def stop(self) -> None:
        """Have none any more."""
        self._victim.kill()
        self.spare()

    def crash_on(self, chosen: Callable[[str], bool], *, before: bool) -> None:
        """Kill the operator at the next request of which this is true; those that were seen are forgotten."""
        self.seen.clear()
        self._chosen, self._before = chosen, before

    def spare(self) -> None:
        """Kill nobody any more."""
        self._chosen = _nothing

    def _kill(self) -> web.Response:
        self._killed = True
        self._victim.kill()
        self.spare()
        return web.Response(status=503)

    @asynccontextmanager
    async def _before_server(self, url: str, trust: ssl.SSLContext | None) -> AsyncIterator[int]:
        async with endless_session() as session:

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
        kind, last = kind_of(request.method, request.path), False
        if trust is None or (request.method != "GET" and kind not in self._beside):
            self.seen.append(kind)
            last = self._chosen(kind)
        body = await request.read()
        if last and self._before:
            return self._kill()
        async with session.request(
            request.method, url + request.raw_path, headers=_kept(request.headers), data=body or None, ssl=trust or True
        ) as answer:
            if last:
                await answer.read()
                return self._kill()
            stream = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            try:
                await stream.prepare(request)
                async for chunk in answer.content.iter_any():
                    await stream.write(chunk)
            except ConnectionResetError:
                pass  # who asked has gone
            return stream


class ProvisionerCrashInjector(CrashInjector):
    """The same to the operator of a provisioner."""

    def __init__(self, site: RotationNamespace, cluster: ClusterAccess, kubeconfig: Path, folder: Path) -> None:
        super().__init__(cluster, kubeconfig, folder, site.routes, BESIDE, f"--watch-namespaces={site.namespace}")
        self.site = site
        self.pods = Pods(site)

    async def done(self) -> bool:
        """Wait until the operator is dead, or has come to rest without such a request; whether it is dead."""

        async def over() -> bool:
            differences = await self._differences()
            moved = await self.pods.sync()
            return self.killed() or not (differences or moved)

        await eventually(over, PATIENCE)
        self.spare()
        return self.killed()

    async def rest(self) -> None:
        """Wait until all is as it must be."""

        async def rests() -> bool:
            differences = await self._differences()
            moved = await self.pods.sync()  # after the look: what has just gone leaves something behind
            assert not differences, differences
            return not moved

        await eventually(rests, PATIENCE)

    async def _differences(self) -> list[str]:
        """What is not as it must be, but for what is seen only some time later: that all daemons are there."""
        return [flaw for flaw in await self.site.differences() if not flaw.startswith("Ready ")]


def _nothing(kind: str) -> bool:
    return False


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP - {"content-encoding"}}
