"""The life of the process: servers, caches, leadership, controllers, in that order, and back."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from coder_k8s.kube.controller import Controller
from coder_k8s.kube.election import Election
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.servers import Check, Server
from coder_k8s.kube.wait import wait_any

log = logging.getLogger(__name__)

FLUSH = 2.0
"""Seconds for the events that wait when the process ends."""


@dataclass(frozen=True, kw_only=True)
class Manager:
    """Runs everything that a process is made of; what starts first stops last.

    Caches are kept on standbys too, so that a new leader begins at once. Controllers that are told to stop get `grace`
    seconds to finish what they do, and the Lease is let go only when the last of them has written its last word.
    """

    servers: Sequence[Server]
    informers: Sequence[Informer[Any]]
    election: Election | None
    controllers: Sequence[Controller]
    recorder: Recorder
    grace: float = 25.0

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when told to stop; raise when a part of it fails."""
        async with AsyncExitStack() as serving:
            for server in self.servers:
                await serving.enter_async_context(server)
            async with asyncio.TaskGroup() as group:
                caches = [group.create_task(one.run(), name=f"informer {one.kind}") for one in self.informers]
                if await self._synced(stopping):
                    await self._lead(stopping)
                for cache in caches:
                    cache.cancel()

    async def _synced(self, stopping: asyncio.Event) -> bool:
        for informer in self.informers:
            await wait_any(informer.synced, stopping)
            if stopping.is_set():
                return False
        log.info("caches are complete", extra={"objects": sum(map(len, self.informers))})
        return True

    async def _lead(self, stopping: asyncio.Event) -> None:
        if self.election is None:
            await self._control(stopping)
        elif await self.election.acquire(stopping):
            await self.election.lead(lambda: self._control(stopping))

    async def _control(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            recording = group.create_task(self.recorder.run(), name="events")
            working = [
                group.create_task(controller.run(stopping), name=f"controller {controller.name}")
                for controller in self.controllers
            ]
            await stopping.wait()
            _, late = await asyncio.wait(working, timeout=self.grace)
            for task in late:
                log.warning("%s was cut off after %g s", task.get_name(), self.grace)
                task.cancel()
            recording.cancel()
            await asyncio.wait([recording])
        await self.recorder.flush(FLUSH)


def liveness(informers: Sequence[Informer[Any]], limit: float) -> Mapping[str, Check]:
    """A watch that cannot be kept alive makes the process blind: better start it anew."""

    def check(informer: Informer[Any]) -> str:
        idle = informer.idle_seconds()
        return f"silent for {idle:.0f} s; {informer.error}".rstrip("; ") if idle > limit else ""

    return {f"watch {informer.kind}": partial(check, informer) for informer in informers}


def readiness(informers: Sequence[Informer[Any]], limit: float) -> Mapping[str, Check]:
    """Ready means that every cache is complete and none has gone blind, leading or not."""

    def check(informer: Informer[Any]) -> str:
        return "" if informer.synced.is_set() else f"not listed yet; {informer.error}".rstrip("; ")

    synced = {f"cache {informer.kind}": partial(check, informer) for informer in informers}
    return {**synced, **liveness(informers, limit)}
