"""Starts and stops the parts of the process: servers, informers, leader election, controllers."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import msgspec

from coder_k8s.kube.controller import Controller
from coder_k8s.kube.election import Election
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.servers import Check, Server
from coder_k8s.kube.wait import cancel_on_stop, wait_any

log = logging.getLogger(__name__)

LISTS_AT_A_TIME = 5
"""Lists at startup that run at the same time. Each takes a connection."""

FLUSH_TIMEOUT = 2.0
"""Seconds to write queued events on shutdown."""


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """Runs the parts of the process; they stop in reverse order.

    Standbys keep their caches current too, so that a new leader reconciles at once. On shutdown, in-flight reconciles
    get `grace` seconds to finish. The Lease is released after the last of them.
    """

    servers: Sequence[Server]
    informers: Sequence[Informer[Any]]
    election: Election | None
    controllers: Sequence[Controller]
    recorder: Recorder
    grace: float = 25.0
    fill_timeout: float = 3.0
    """Seconds. The lists of a cluster with thousands of objects take less."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set; raise if a part fails."""
        async with AsyncExitStack() as serving:
            for server in self.servers:
                await serving.enter_async_context(server)
            await cancel_on_stop(stopping, self._fill_caches())
            async with asyncio.TaskGroup() as group:
                caches = [group.create_task(one.run(), name=f"informer {one.kind}") for one in self.informers]
                if await self._wait_for_sync(stopping):
                    await self._lead(stopping)
                for cache in caches:
                    cache.cancel()

    async def _fill_caches(self) -> None:
        """List all kinds with a few connections: the TLS handshakes of all watches take longer than the lists.

        What takes longer is left to the informers: a slow list must not delay the watches of other kinds.
        """
        slots = asyncio.Semaphore(LISTS_AT_A_TIME)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.fill_timeout), asyncio.TaskGroup() as group:
                for informer in self.informers:
                    group.create_task(informer.fill(slots))

    async def _wait_for_sync(self, stopping: asyncio.Event) -> bool:
        for informer in self.informers:
            await wait_any(informer.synced, stopping)
            if stopping.is_set():
                return False
        log.info("caches are synced", extra={"objects": sum(map(len, self.informers))})
        return True

    async def _lead(self, stopping: asyncio.Event) -> None:
        if self.election is None:
            await self._run_controllers(stopping)
        elif await self.election.acquire(stopping):
            await self.election.lead(lambda: self._run_controllers(stopping))

    async def _run_controllers(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            recording = group.create_task(self.recorder.run(), name="events")
            working = [
                group.create_task(controller.run(stopping), name=f"controller {controller.name}")
                for controller in self.controllers
            ]
            await stopping.wait()
            _, late = await asyncio.wait(working, timeout=self.grace)
            for task in late:
                log.warning("%s cancelled: not finished within %g s", task.get_name(), self.grace)
                task.cancel()
            recording.cancel()
            await asyncio.wait([recording])
        await self.recorder.flush(FLUSH_TIMEOUT)


def liveness(informers: Sequence[Informer[Any]], limit: float) -> Mapping[str, Check]:
    """Return checks that fail if a watch is idle for longer than `limit`, so that the kubelet restarts the pod."""

    def check(informer: Informer[Any]) -> str:
        idle = informer.idle_seconds()
        return f"idle for {idle:.0f} s; {informer.error}".rstrip("; ") if idle > limit else ""

    return {f"watch {informer.kind}": partial(check, informer) for informer in informers}


def readiness(informers: Sequence[Informer[Any]], limit: float) -> Mapping[str, Check]:
    """Return checks that pass if every cache is synced and every watch is alive, leading or not."""

    def check(informer: Informer[Any]) -> str:
        return "" if informer.synced.is_set() else f"not synced; {informer.error}".rstrip("; ")

    synced = {f"cache {informer.kind}": partial(check, informer) for informer in informers}
    return {**synced, **liveness(informers, limit)}
