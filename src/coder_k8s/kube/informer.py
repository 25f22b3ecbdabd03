"""A cache that a watch keeps current."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NoReturn, TypeVar

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client, WatchEvent
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind, Object

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)


class Informer(Cache[T]):
    """Lists a kind once, then watches it for ever, in one or several namespaces.

    A watch ends for many reasons and always goes on from its position; only `Gone` means that the server forgot that
    position, and then only a list finds what was deleted meanwhile. The server sends a bookmark every minute, so a
    watch that says nothing for longer is dead, whatever TCP believes. Somebody in between may cut it sooner, as some
    load balancers do: what a watch has missed it is told at once, so one that lived for a while was alive. A kind that
    is not installed is waited for; an `optional` one counts as synced and empty until it appears.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        namespaces: Sequence[str] = ("",),
        *,
        metrics: Metrics,
        optional: bool = False,
        labels: str = "",
        patience: float = 70.0,
        min_watch_lifetime: float = 10.0,
        lifetime: int = 300,
        absent_poll: float = 5.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.synced = asyncio.Event()
        self._troubles: dict[str, str] = {}
        self._client = client
        self._namespaces = tuple(namespaces) if kind.namespaced else ("",)
        self._optional = optional
        self._labels = labels
        self._patience = patience
        self._a_while = min_watch_lifetime
        self._lifetime = lifetime
        self._absent_poll = absent_poll
        self._backoff = backoff or Backoff(0.1, 5.0, jitter)
        self._clock = clock
        self._jitter = jitter
        self._heard = dict.fromkeys(self._namespaces, clock())
        self._complete: set[str] = set()
        self._undecodable = metrics.undecodable.labels(str(kind))
        metrics.cached_objects.labels(str(kind)).set_function(self.__len__)
        metrics.watch_age.labels(str(kind)).set_function(self.silence)

    @property
    def trouble(self) -> str:
        """Why one of its watches does not work; empty when all do."""
        return next(iter(self._troubles.values()), "")

    def silence(self) -> float:
        """Seconds since the last sign of life of the quietest of its watches."""
        return self._clock() - min(self._heard.values())

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._follow(namespace), name=f"watch {self.kind} {namespace}")
        raise AssertionError("a watch returned")

    async def _follow(self, namespace: str) -> NoReturn:
        complete, failures = False, 0
        while True:
            heard, wait = self._heard[namespace], 0.0
            try:
                if not complete:
                    await self._list(namespace)
                    complete = True
                await self._watch(namespace)
            except errors.NotFound:
                await self._absent(namespace)
                complete = False
                continue
            except errors.Gone:
                complete = False
                self._report(namespace, "the position of the watch is no longer kept")
            except errors.KubeError as trouble:
                wait = trouble.after if isinstance(trouble, errors.Throttled) else 0.0
                self._report(namespace, str(trouble))
            failures = 1 if self._heard[namespace] != heard else failures + 1
            await asyncio.sleep(max(self._backoff.delay(failures), min(wait, self._patience)))

    async def _list(self, namespace: str) -> None:
        items: list[T] = []
        version = ""
        async for page in self._client.list(self.kind, namespace, labels=self._labels):
            items += [item for raw in page.items if (item := self._decode(raw) or self.get(_bare(raw).key)) is not None]
            version = page.resource_version
            self._heard[namespace] = self._clock()
        self.listed(namespace, items, version)
        self._arrived(namespace)

    async def _watch(self, namespace: str) -> None:
        events = self._client.watch(
            self.kind,
            namespace,
            self.position(namespace),
            seconds=int(self._lifetime * (1 + self._jitter())),
            silence=self._patience,
            labels=self._labels,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    self._take(namespace, event)
                    self._heard[namespace] = self._clock()
                    self._troubles.pop(namespace, None)
        except errors.StreamInterrupted as cut:
            if cut.lived >= self._a_while:
                self._heard[namespace] = self._clock()
            raise

    def _take(self, namespace: str, event: WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED") and (new := self._decode(event.object)) is not None:
            return self.seen(namespace, new)
        bare = _bare(event.object)  # all that a bookmark has, and all that can be said of what cannot be read
        if event.type == "DELETED":
            return self.gone(namespace, bare)
        return self.moved(namespace, bare.metadata.resource_version)

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """An object that cannot be read stays as it was when it could be: it is not gone, and nothing may follow it."""
        try:
            return self.kind.type.decode(raw)
        except (ValueError, TypeError, KeyError) as trouble:
            self._undecodable.inc()
            log.error("cannot read %s %s: %s", self.kind.name, _bare(raw).key, trouble)
            return None

    async def _absent(self, namespace: str) -> None:
        self.forget(namespace)
        if self._optional:
            self._arrived(namespace)
        else:
            words = f"the API server does not know {self.kind}: install its CustomResourceDefinition"
            self._report(namespace, words)
        self._heard[namespace] = self._clock()
        await asyncio.sleep(self._absent_poll)

    def _arrived(self, namespace: str) -> None:
        self._troubles.pop(namespace, None)
        self._complete.add(namespace)
        if self._complete.issuperset(self._namespaces):
            self.synced.set()

    def _report(self, namespace: str, trouble: str) -> None:
        if trouble != self._troubles.get(namespace):
            log.warning("watching %s: %s", self.kind, trouble)
        self._troubles[namespace] = trouble


def _bare(raw: msgspec.Raw) -> Object:
    try:
        return Object.decode(raw)
    except ValueError as trouble:
        raise errors.not_kubernetes(trouble) from trouble
