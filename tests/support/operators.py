"""Runs the operator in this process with its own ServiceAccount, in the namespaces of a test."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from coder_k8s.coderd.connections import Endpoint, Limits
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.kube.client import Client
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.interceptor import InterceptedConnections, InterceptedHttp, Interceptor
from tests.support.metrics import total

log = logging.getLogger("coder_k8s.tests")

Builder = Callable[[Runtime], Controller]
TIMEOUT = 60.0


class Operator:
    """Controllers with their caches, events and connections, from `start` to `stop` or `kill`.

    `user` is the client of the test, whose writes `wait_idle` waits for. Other options are passed to `Runtime`.
    """

    runtime: Runtime
    key: Key
    """The default object of `reconcile`, `later` and `requeue_after`."""

    def __init__(
        self,
        kubeconfig: Path,
        namespaces: Sequence[str],
        *builders: Builder,
        connect_to: Mapping[Endpoint, Endpoint] | None = None,
        limits: Limits | None = None,
        interceptor: Interceptor | None = None,
        user: Client | None = None,
        **options: Any,
    ) -> None:
        self.interceptor = interceptor or Interceptor()
        self.controllers: list[Controller] = []
        self._metrics = Metrics()
        self._http = InterceptedHttp(kubeconfig, self._metrics, self.interceptor)
        self._coderd = InterceptedConnections(connect_to, limits, self.interceptor)
        self._builders = builders
        self._user = user
        self._options = {"namespaces": namespaces, **options}
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await (self.kill() if self.crashed else self.stop())

    async def start(self) -> None:
        """Return when all caches are synced and the workers run."""
        self._task = asyncio.create_task(self._run())
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        self._raise_if_ended()

    async def stop(self) -> None:
        """Finish the reconciles in flight, then stop."""
        self._stopping.set()
        await self._task

    async def kill(self) -> None:
        """Stop immediately: reconciles in flight do not finish, and no more requests are sent."""
        self.interceptor.crashed.set()
        self._task.cancel()
        await asyncio.wait([self._task])
        assert self._task.cancelled(), self._task.exception()

    def cancel_workers(self) -> None:
        """Cancel every reconcile in flight, and start no others."""
        names = tuple(f"{controller.name} worker" for controller in self.controllers)
        for task in asyncio.all_tasks():
            if task.get_name().startswith(names):
                task.cancel()

    @property
    def crashed(self) -> bool:
        return self.interceptor.crashed.is_set()

    @property
    def idle(self) -> bool:
        """Whether no reconcile is in flight, queued or due, and all events are written."""
        return all(controller.queue.idle for controller in self.controllers) and self.runtime.recorder.idle

    async def wait_idle(self, *, stale: bool = False) -> bool:
        """Wait until the operator has seen all writes of the user, unless it is stale, and is idle.

        Return False if it crashed.
        """

        def check() -> bool:
            self._raise_if_ended()
            return self.crashed or ((stale or self._is_current()) and self.idle)

        await eventually(check, TIMEOUT)
        return not self.crashed

    def _is_current(self) -> bool:
        return not isinstance(self._user, UserClient) or self._user.seen_by(self.informers.values())

    async def reconcile(self, *keys: Key) -> None:
        """Reconcile each key, and wait until the operator is idle."""
        await self.wait_idle()
        for key in keys or [self.key]:
            self.enqueue(key)
        await self.wait_idle()

    def enqueue(self, key: Key) -> None:
        [controller] = self.controllers
        controller.queue.add(key)

    async def later(self, **spans: float) -> None:
        """Advance the clock, then reconcile."""
        await self.wait_idle()
        clock = self.runtime.now
        assert isinstance(clock, Clock)
        clock.advance(**spans)
        await self.reconcile()

    def requeue_after(self, key: Key | None = None) -> float | None:
        """Seconds until the next periodic reconcile."""
        [controller] = self.controllers
        return controller.queue.next_due(key or self.key)

    @asynccontextmanager
    async def one_more_reconcile(self) -> AsyncIterator[None]:
        """Wait for a reconcile that follows the block, and until the operator is idle."""
        await self.wait_idle()
        before = self.reconciles()
        yield
        await eventually(lambda: self.reconciles() > before)
        await self.wait_idle()

    def reconciles(self) -> int:
        """The number of finished reconciles."""
        return total(self._metrics.reconciles)

    def writes(self) -> int:
        """The number of writes to the API server, without dry runs."""
        return sum(request.is_write and not request.dry_run for request in self.interceptor.requests)

    def write_requests(self) -> int:
        """The number of writes to the API server, including dry runs."""
        return sum(request.is_write for request in self.interceptor.requests)

    def metrics(self) -> str:
        return self._metrics.registry.text()

    @property
    def informers(self) -> dict[Kind[Any], Informer[Any]]:
        return self.runtime.informers

    def _raise_if_ended(self) -> None:
        if self._task.done() and not self._stopping.is_set():
            raise RuntimeError("the operator has stopped") from self._task.exception()

    async def _run(self) -> None:
        async with self._http as http, self._coderd as coderd, asyncio.TaskGroup() as group:
            client = Client(http, "coder-k8s")
            recorder = Recorder(client, "coder-k8s", "test", self._metrics)
            self.runtime = Runtime(
                client=client, coderd=coderd, recorder=recorder, metrics=self._metrics, **self._options
            )
            self.controllers = [build(self.runtime) for build in self._builders]
            background: list[asyncio.Task[None]] = [group.create_task(recorder.run())]
            background += [group.create_task(informer.run()) for informer in self.informers.values()]
            for informer in self.informers.values():
                await asyncio.wait_for(informer.synced.wait(), TIMEOUT)
            work = [group.create_task(controller.run(self._stopping)) for controller in self.controllers]
            self._ready.set()
            await asyncio.wait(work)
            assert len(self.informers) + 1 == len(background), "an informer that was created later does not run"
            for task in background:
                task.cancel()
        log.debug("labels of metrics: %s", labels(self._metrics))  # tests/security searches them for secrets


def labels(metrics: Metrics) -> list[str]:
    """All label values of all metrics."""
    families = metrics.registry.collect()
    return sorted({value for family in families for each in family.samples for value in each.labels})
