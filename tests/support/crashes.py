"""An operator that crashes at a chosen request, and a cluster that goes on without it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from coder_k8s.coderd.connections import Connections, Endpoint, Response
from coder_k8s.controllers.provisioner import wiring
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.http import Fence, Http, Query
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Unstructured
from tests.support import eventually
from tests.support.children import collect_garbage
from tests.support.rotations import RotationNamespace, secret_of

T = TypeVar("T")
STEP = 61.0
"""Seconds between two looks of the operator."""
MAX_RECONCILES = 12
"""Passes that are more than enough for anything."""


class Clock:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **spans: float) -> None:
        self.time += timedelta(**spans)


class CrashPoint:
    """Counts the requests that matter, and ends the operator right before or right after one of them.

    Those are all to coderd, and the writes to Kubernetes. A crash at a read is one between two of these. So is one at
    an event, which is written beside the passes: counting those would only make the order a matter of luck.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.crashed = asyncio.Event()
        self._at = 0
        self._start = ""
        self._before = False

    def crash_on(self, start: str, *, before: bool = False) -> None:
        """Die at the first request that begins like this from now on."""
        self.crash_at(0, before=before)
        self._start = start

    def crash_at(self, at: int, *, before: bool = False) -> None:
        """Die at this request from now on; the first is number one, and none is number zero."""
        self.seen.clear()
        self._at, self._start, self._before = at, "", before

    async def intercept(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        """Make a request, unless it is too late for that."""
        await self._block_if_crashed()
        self.seen.append(request)
        last = len(self.seen) == self._at or bool(self._start and request.startswith(self._start))
        if last and self._before:
            await self._crash()
        answer = await send()
        await self._block_if_crashed()
        if last:
            await self._crash()
        return answer

    async def forward(self, send: Callable[[], Awaitable[T]]) -> T:
        """Make a request that does not matter."""
        await self._block_if_crashed()
        answer = await send()
        await self._block_if_crashed()
        return answer

    async def _block_if_crashed(self) -> None:
        """Block for ever in a dead process; a task that is being cancelled ends, whatever its cleanup would send."""
        if not self.crashed.is_set():
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        await self._block()

    async def _crash(self) -> None:
        self.crashed.set()
        await self._block()

    async def _block(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def alive(self, ready: Awaitable[object]) -> bool:
        """Wait until something is ready or the process is dead; whether it is still alive."""
        waiting = [asyncio.ensure_future(each) for each in (ready, self.crashed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        return not self.crashed.is_set()


class CrashableHttp(Http):
    """Requests to Kubernetes until the operator dies."""

    def __init__(self, kubeconfig: Path, metrics: Metrics, crash_point: CrashPoint) -> None:
        super().__init__(load(kubeconfig), "test", metrics)
        self._crash_point = crash_point

    async def send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Query,
        body: bytes | None = None,
        fence: Fence | None = None,
    ) -> bytes:
        send = super().send
        if method == "GET" or "/events" in path:
            return await self._crash_point.forward(lambda: send(method, path, query, headers, body, fence))
        return await self._crash_point.intercept(
            f"{method} {path}", lambda: send(method, path, query, headers, body, fence)
        )


class CrashableConnections(Connections):
    """Requests to coderd until the operator dies."""

    def __init__(self, routes: Mapping[Endpoint, Endpoint], crash_point: CrashPoint) -> None:
        super().__init__(routes)
        self._crash_point = crash_point

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        exchange = super().exchange
        return await self._crash_point.intercept(f"{method} {url}", lambda: exchange(method, url, headers, body))


@asynccontextmanager
async def crashable(
    kubeconfig: Path,
    namespaces: Sequence[str],
    routes: Mapping[Endpoint, Endpoint],
    now: Callable[[], datetime],
    crash_point: CrashPoint,
    build: Callable[[Runtime], Controller],
) -> AsyncIterator[Controller]:
    """A controller that ends without a word when it has met its fate."""
    metrics = Metrics()
    async with (
        CrashableHttp(kubeconfig, metrics, crash_point) as http,
        CrashableConnections(routes, crash_point) as coderd,
        asyncio.TaskGroup() as group,
    ):
        client = Client(http, "coder-k8s")
        recorder = Recorder(client, "coder-k8s", "test", metrics)
        runtime = Runtime(
            client=client, coderd=coderd, recorder=recorder, metrics=metrics, namespaces=namespaces, now=now
        )
        controller = build(runtime)
        tasks: list[asyncio.Task[None]] = [group.create_task(recorder.run())]
        tasks += [group.create_task(each.run()) for each in runtime.informers.values()]
        if await crash_point.alive(asyncio.gather(*(each.synced.wait() for each in runtime.informers.values()))):
            tasks.append(group.create_task(controller.run(asyncio.Event())))
        try:
            yield controller
        finally:
            crash_point.crashed.set()
            for task in tasks:
                task.cancel()


class Operator:
    """The controller of provisioners, until it is killed: its tasks and connections end without a word."""

    def __init__(self, kubeconfig: Path, site: RotationNamespace, clock: Clock) -> None:
        self.crash_point = CrashPoint()
        self._kubeconfig = kubeconfig
        self._site = site
        self._clock = clock
        self._ready = asyncio.Event()
        self._controller: Controller
        self._life: asyncio.Task[None]

    async def start(self) -> None:
        self._life = asyncio.create_task(self._live())
        await eventually(lambda: self._ready.is_set() or self._life.done())
        self._check()

    async def kill(self) -> None:
        self.crash_point.crashed.set()
        self._life.cancel()
        await asyncio.wait([self._life])
        assert self._life.cancelled(), self._life.exception()

    async def idle(self) -> bool:
        """Wait until there is nothing to do; whether it lives to see that."""
        queue = self._controller.queue

        def settled() -> bool:
            self._check()
            return self.crash_point.crashed.is_set() or not (len(queue) or queue._busy)

        await eventually(settled)
        return not self.crash_point.crashed.is_set()

    def reconcile(self, after: float = STEP) -> None:
        """Let the operator look at the provisioner, as it does by itself some time later."""
        self._clock.advance(seconds=after)
        self._controller.queue.add(self._site.key)

    def _check(self) -> None:
        if self._life.done():
            raise RuntimeError("the operator has ended") from self._life.exception()

    async def _live(self) -> None:
        site = self._site
        async with crashable(
            self._kubeconfig, [site.namespace], site.routes, self._clock, self.crash_point, wiring.build
        ) as controller:
            self._controller = controller
            self._ready.set()
            await asyncio.get_running_loop().create_future()


class Pods:
    """The controllers of Kubernetes, and daemons that leave some time after the next ones have come."""

    def __init__(self, site: RotationNamespace) -> None:
        self._site = site
        self._daemons: list[tuple[State, str]] = []
        self._leaving: list[tuple[State, str]] = []
        self._excused: set[str] = set()

    async def sync(self) -> bool:
        """Take one step; whether there was one to take."""
        for state, daemon in self._leaving:
            if daemon in state.daemons:
                state.disconnect_daemon(daemon)
        left, self._leaving = bool(self._leaving), []
        if await self._site.provisioner() is None:
            return await collect_garbage(self._site.client, await self._site.children()) or left
        deployment = await self._site.find(DEPLOYMENT, f"provisioner-{self._site.name}")
        if deployment is None or is_rolled_out(deployment):
            return left
        secret = await self._site.find(SECRET, secret_of(deployment.manifest["spec"]["template"]))
        if secret is None:
            return left  # the new pods wait for it, and the old ones stay
        self._leaving, self._daemons = self._daemons, []
        replicas = deployment.manifest["spec"]["replicas"]
        for _ in range(replicas):
            self._log_in(base64.b64decode((secret.manifest.get("data") or {}).get("key", "")).decode())
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
        status = {"observedGeneration": deployment.metadata.generation, **counts}
        await self._site.client.merge(DEPLOYMENT, deployment.key, {"status": status}, "status")
        return True

    def orphans(self) -> list[str]:
        """Daemons that lost their key while they were connected with it."""
        known = [each for each in self._daemons + self._leaving if each[1] not in self._excused]
        return [daemon for state, daemon in known if daemon not in state.daemons]

    def excuse(self) -> None:
        """Those that are connected now may lose their key: somebody takes it."""
        self._excused |= {daemon for _, daemon in self._daemons + self._leaving}

    def _log_in(self, secret: str) -> None:
        for coderd in self._site.coderds.values():
            for place, key in coderd.state.keys.items():
                if key.secret == secret:
                    daemon = coderd.state.connect_daemon(f"pod-{key.id[:8]}", place)
                    self._daemons.append((coderd.state, daemon))


def is_rolled_out(deployment: Unstructured) -> bool:
    """Whether its controller has done all that it was told."""
    status = deployment.manifest.get("status") or {}
    return bool(status.get("observedGeneration", 0) >= deployment.metadata.generation)


class Trial:
    """An operator that is to crash in the middle of what it does, in a cluster that goes on."""

    def __init__(self, site: RotationNamespace, kubeconfig: Path, clock: Clock) -> None:
        self.site = site
        self.clock = clock
        self.pods = Pods(site)
        self.operator = Operator(kubeconfig, site, clock)
        self._kubeconfig = kubeconfig

    async def restart(self) -> None:
        await self.operator.kill()
        self.operator = Operator(self._kubeconfig, self.site, self.clock)
        await self.operator.start()

    async def rest(self, replaced: str = "") -> bool:
        """Let time pass until all is as it must be, with another key than this; whether the operator lives then."""
        for _ in range(MAX_RECONCILES):
            if not await self.operator.idle():
                return False
            assert not self.pods.orphans(), "a key was deleted while a daemon was connected with it"
            if not await self.pods.sync() and not await self._differences(replaced):
                return await self.operator.idle()  # it may have looked again, and died of that
            if not await self.operator.idle():
                return False
            self.operator.reconcile()
        raise AssertionError(await self._differences(replaced))

    async def stay_quiet(self) -> None:
        """See that the operator asks at most, and writes nothing, once it knows the last daemon that has gone."""
        for _ in range(3):
            self.operator.crash_point.crash_at(0)
            self.operator.reconcile()
            assert await self.operator.idle()
        assert all(request.startswith("GET ") for request in self.operator.crash_point.seen), (
            self.operator.crash_point.seen
        )

    async def _differences(self, replaced: str) -> list[str]:
        differences = await self.site.differences()
        return differences or [
            f"{each.key.name} is still used" for each in self.site.found() if each.key.id == replaced
        ]
