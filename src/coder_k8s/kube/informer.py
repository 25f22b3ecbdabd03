"""A cache that a watch keeps current."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How an informer watches; times are in seconds."""

    watch_idle_timeout: float = 70.0
    """A watch without an event or bookmark for this time is restarted."""
    min_watch_lifetime: float = 10.0
    """A watch that was interrupted after this time was alive until then."""
    watch_timeout: int = 300
    """The API server ends a watch after this time, or up to twice as long."""
    missing_kind_interval: float = 5.0
    """Time between two checks for a kind that is not installed."""
    backoff: Backoff | None = None
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


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
        options: WatchOptions = WatchOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__()
        self.kind = kind
        self.synced = asyncio.Event()
        self._errors: dict[str, str] = {}
        self._client = client
        self._namespaces = tuple(namespaces) if kind.namespaced else ("",)
        self._optional = optional
        self._labels = labels
        self._options = options
        self._backoff = options.backoff or Backoff(0.1, 5.0, options.jitter)
        self._clock = options.clock
        self._last_activity = dict.fromkeys(self._namespaces, options.clock())
        self._synced_namespaces: set[str] = set()
        self._undecodable = metrics.undecodable.labels(str(kind))
        metrics.cached_objects.labels(str(kind)).set_function(self.__len__)
        metrics.watch_age.labels(str(kind)).set_function(self.idle_seconds)

    @property
    def error(self) -> str:
        """Why one of its watches does not work; empty when all do."""
        return next(iter(self._errors.values()), "")

    def idle_seconds(self) -> float:
        """Seconds since the last sign of life of the quietest of its watches."""
        return self._clock() - min(self._last_activity.values())

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._list_and_watch(namespace), name=f"watch {self.kind} {namespace}")
        raise AssertionError("a watch returned")

    async def _list_and_watch(self, namespace: str) -> NoReturn:
        complete, failures = False, 0
        while True:
            last_activity, wait = self._last_activity[namespace], 0.0
            try:
                if not complete:
                    await self._list(namespace)
                    complete = True
                await self._watch(namespace)
            except errors.NotFound:
                await self._handle_missing_kind(namespace)
                complete = False
                continue
            except errors.Gone:
                complete = False
                self._report(namespace, "the position of the watch is no longer kept")
            except errors.KubeError as trouble:
                wait = trouble.after if isinstance(trouble, errors.Throttled) else 0.0
                self._report(namespace, str(trouble))
            failures = 1 if self._last_activity[namespace] != last_activity else failures + 1
            await asyncio.sleep(max(self._backoff.delay(failures), min(wait, self._options.watch_idle_timeout)))

    async def _list(self, namespace: str) -> None:
        items: list[T] = []
        version = ""
        async for page in self._client.list(self.kind, namespace, labels=self._labels):
            decoded = (self._decode(raw) or self.get(_decode_metadata(raw).key) for raw in page.items)
            items += [item for item in decoded if item is not None]
            version = page.resource_version
            self._last_activity[namespace] = self._clock()
        self.replace(namespace, items, version)
        self._mark_synced(namespace)

    async def _watch(self, namespace: str) -> None:
        events = self._client.watch(
            self.kind,
            namespace,
            self.last_sync_version(namespace),
            seconds=int(self._options.watch_timeout * (1 + self._options.jitter())),
            idle_timeout=self._options.watch_idle_timeout,
            labels=self._labels,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    self._handle_event(namespace, event)
                    self._last_activity[namespace] = self._clock()
                    self._errors.pop(namespace, None)
        except errors.StreamInterrupted as cut:
            if cut.duration >= self._options.min_watch_lifetime:
                self._last_activity[namespace] = self._clock()
            raise

    def _handle_event(self, namespace: str, event: WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED") and (new := self._decode(event.object)) is not None:
            return self.update(namespace, new)
        partial = _decode_metadata(event.object)  # bookmarks and undecodable objects have nothing else
        if event.type == "DELETED":
            return self.delete(namespace, partial)
        return self.bookmark(namespace, partial.metadata.resource_version)

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """An object that cannot be read stays as it was when it could be: it is not gone, and nothing may follow it."""
        try:
            return self.kind.type.decode(raw)
        except (ValueError, TypeError, KeyError) as trouble:
            self._undecodable.inc()
            log.error("cannot read %s %s: %s", self.kind.name, _decode_metadata(raw).key, trouble)
            return None

    async def _handle_missing_kind(self, namespace: str) -> None:
        self.clear(namespace)
        if self._optional:
            self._mark_synced(namespace)
        else:
            words = f"the API server does not know {self.kind}: install its CustomResourceDefinition"
            self._report(namespace, words)
        self._last_activity[namespace] = self._clock()
        await asyncio.sleep(self._options.missing_kind_interval)

    def _mark_synced(self, namespace: str) -> None:
        self._errors.pop(namespace, None)
        self._synced_namespaces.add(namespace)
        if self._synced_namespaces.issuperset(self._namespaces):
            self.synced.set()

    def _report(self, namespace: str, trouble: str) -> None:
        if trouble != self._errors.get(namespace):
            log.warning("watching %s: %s", self.kind, trouble)
        self._errors[namespace] = trouble


def _decode_metadata(raw: msgspec.Raw) -> Object:
    try:
        return Object.decode(raw)
    except ValueError as trouble:
        raise errors.invalid_response(trouble) from trouble
