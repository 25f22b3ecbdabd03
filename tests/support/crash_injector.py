"""Runs the operator as a process, and kills it at a chosen request."""

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from aiohttp import web

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import Process, ProcessFailed, tail
from tests.support import eventually
from tests.support.crashes import Pods
from tests.support.forwarding import Forwarder
from tests.support.rotations import RotationNamespace

TIMEOUT = 40.0
IGNORED = ("PATCH codercontrolplanes/*/status", "PATCH events/*")
"""Writes that are not about provisioners, or that happen at a random time: updates of repeated events."""
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
    """Forwards the requests of operators, and kills the running one immediately before or after a chosen request.

    After means when the server has responded, and before the operator receives the response.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        kubeconfig: Path,
        folder: Path,
        routes: Mapping[Endpoint, Endpoint],
        ignored: Sequence[str],
        *flags: str,
    ) -> None:
        self.seen: list[str] = []
        """The requests to coderd and the writes to Kubernetes, without names and without ignored ones."""
        self.ignored = ignored
        self._cluster = cluster
        self._identity = kubeconfig
        self._folder = folder
        self._routes = routes
        forwarded = ("--kubeconfig", str(folder / "forwarded"), "--no-leader-elect")
        silent = ("--health-probe-bind-address=0", "--metrics-bind-address=0", "--log-level=debug")
        self._command = [sys.executable, "-m", "coder_k8s", "controller", *flags, *forwarded, *silent]
        self._process = Process(self._command, folder / "operator.log")
        self._chosen: Callable[[str], bool] = _none
        self._before = False
        self._killed = False
        self._starts = 0

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Self]:
        """Run proxies in front of the API server and every coderd."""
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(CrashForwarder(self, self._cluster))
            api.kubeconfig(self._identity, self._folder / "forwarded")
            routes = []
            for service, coderd in self._routes.items():
                server = CrashForwarder(self, f"http://127.0.0.1:{coderd.port}")
                port = (await stack.enter_async_context(server)).port
                routes.append(f"{service.host}:{service.port}=127.0.0.1:{port}")
            self._command.append(f"--coderd-connect-to={','.join(routes)}")
            try:
                yield self
            finally:
                self.stop()

    def killed(self) -> bool:
        """Whether the operator was killed. Fails if it ended in another way."""
        if not (self._killed or self._process.running):
            raise ProcessFailed(tail(self._process.log))
        return self._killed

    def start(self) -> None:
        """Start an operator."""
        self._killed = False
        self._starts += 1
        self._process = Process(self._command, self._folder / f"operator-{self._starts}.log")
        self._process.start()

    def stop(self) -> None:
        self._process.kill()
        self.disarm()

    def crash_on(self, chosen: Callable[[str], bool], *, before: bool) -> None:
        """Kill the operator at the next request that matches; clears `seen`."""
        self.seen.clear()
        self._chosen, self._before = chosen, before

    def disarm(self) -> None:
        """Do not kill the operator."""
        self._chosen = _none

    def kill(self) -> web.Response:
        self._killed = True
        self._process.kill()
        self.disarm()
        return web.Response(status=503)

    def when(self, kind: str) -> str:
        """Record a request; return whether to kill the operator `before` or `after` it, or an empty string."""
        self.seen.append(kind)
        if not self._chosen(kind):
            return ""
        return "before" if self._before else "after"


class CrashForwarder(Forwarder):
    """A proxy in front of a server whose requests are counted."""

    def __init__(self, injector: CrashInjector, server: ClusterAccess | str) -> None:
        super().__init__(server)
        self._injector = injector
        self._is_coderd = isinstance(server, str)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind = kind_of(request.method, request.path)
        counted = self._is_coderd or (request.method != "GET" and kind not in self._injector.ignored)
        when = self._injector.when(kind) if counted else ""
        if not when:
            return await super().handle(request)
        if when == "after":
            async with self.send(request, request.raw_path) as response:
                await response.read()
        return self._injector.kill()


class ProvisionerCrashInjector(CrashInjector):
    """A CrashInjector for the operator of a provisioner."""

    def __init__(self, site: RotationNamespace, cluster: ClusterAccess, folder: Path) -> None:
        watched = f"--watch-namespaces={site.namespace}"
        super().__init__(cluster, site.kubeconfig, folder, site.routes, IGNORED, watched)
        self.site = site
        self.pods = Pods(site)

    async def done(self) -> bool:
        """Wait until the operator is killed or the state is steady; return whether it was killed."""

        async def over() -> bool:
            differences = await self._differences()
            moved = await self.pods.sync()
            return self.killed() or not (differences or moved)

        await eventually(over, TIMEOUT)
        self.disarm()
        return self.killed()

    async def wait_steady(self) -> None:
        """Wait until the state is steady."""

        async def is_steady() -> bool:
            differences = await self._differences()
            moved = await self.pods.sync()  # after the differences: a deletion that just happened leaves orphans
            assert not differences, differences
            return not moved

        await eventually(is_steady, TIMEOUT)

    async def _differences(self) -> list[str]:
        """The differences from the steady state, without Ready, which depends on later reconciles."""
        return [each for each in await self.site.differences() if not each.startswith("Ready ")]


def _none(kind: str) -> bool:
    return False
