"""A cache that is kept current by a list and a watch."""

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


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an informer watches; times are in seconds."""

    watch_idle_timeout: float = 70.0
    """A watch without an event or bookmark for this time is restarted: its connection may be dead."""
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
    """Lists a kind, then watches it, in one or several namespaces.

    After an error the watch resumes from the last sync version. After `Gone` a relist finds the objects that were
    deleted meanwhile. The server sends a bookmark every minute, but in a quiet cluster the first one may take two. So
    an idle watch is restarted after `watch_idle_timeout`, and is an error if it is idle again. A load balancer may
    interrupt a watch earlier, before the first bookmark. The server sends missed events at once, so a watch that lasted
    `min_watch_lifetime` worked. The informer waits for a kind that is not installed; an `optional` one counts as synced
    and empty until then.
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
        self._namespaces = tuple(dict.fromkeys(namespaces)) if kind.namespaced else ("",)
        self._optional = optional
        self.labels = labels
        self._selected = dict(label.split("=") for label in labels.split(",") if label)
        self._options = options
        self._backoff = options.backoff or Backoff(0.1, 5.0, options.jitter)
        self._clock = options.clock
        self._last_activity = dict.fromkeys(self._namespaces, options.clock())
        self._listed: set[str] = set()
        self._synced_namespaces: set[str] = set()
        self._undecodable = metrics.undecodable.labels(str(kind))
        metrics.cached_objects.labels(str(kind)).set_function(self.__len__)
        metrics.watch_age.labels(str(kind)).set_function(self.idle_seconds)

    def record_write(self, new: T, writer: str) -> None:
        """Put the response to a write into the cache, unless the object lacks a label that the watch selects.

        No event would change it in the cache, or remove it.
        """
        if self._selected.items() <= new.metadata.labels.items():
            super().record_write(new, writer)

    @property
    def error(self) -> str:
        """The error of one of its watches; empty if all work."""
        return next(iter(self._errors.values()), "")

    def idle_seconds(self) -> float:
        """Return the seconds since the last activity of the watch that is idle for the longest time."""
        return self._clock() - min(self._last_activity.values())

    async def fill(self, slots: asyncio.Semaphore) -> None:
        """List each namespace before `run`, which repeats what fails.

        Informers that share the slots need few connections for their lists.
        """
        for namespace in self._namespaces:
            async with slots:
                try:
                    await self._list(namespace)
                except errors.NotFound:
                    self._record_missing_kind(namespace)
                except errors.KubeError as error:
                    self._set_error(namespace, str(error))

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._list_and_watch(namespace), name=f"watch {self.kind} {namespace}")
        raise AssertionError("a watch returned")

    async def _list_and_watch(self, namespace: str) -> NoReturn:
        failures = 0
        while True:
            last_activity, retry_after = self._last_activity[namespace], 0.0
            try:
                if namespace not in self._listed:
                    await self._list(namespace)
                await self._watch(namespace)
            except errors.NotFound:
                self._record_missing_kind(namespace)
                await asyncio.sleep(self._options.missing_kind_interval)
                continue
            except errors.Gone:
                self._listed.discard(namespace)
                self._set_error(namespace, "the resourceVersion of the watch is too old")
            except errors.StreamIdle as idle:
                if self._clock() - self._last_activity[namespace] >= 2 * self._options.watch_idle_timeout:
                    self._set_error(namespace, str(idle))
            except errors.KubeError as error:
                retry_after = error.after if isinstance(error, errors.Throttled) else 0.0
                self._set_error(namespace, str(error))
            failures = 1 if self._last_activity[namespace] != last_activity else failures + 1
            await asyncio.sleep(max(self._backoff.delay(failures), min(retry_after, self._options.watch_idle_timeout)))

    async def _list(self, namespace: str) -> None:
        items: list[T] = []
        version = ""
        async for page in self._client.list(self.kind, namespace, labels=self.labels):
            decoded = (self._decode(raw) or self.get(_decode_metadata(raw).key) for raw in page.items)
            items += [item for item in decoded if item is not None]
            version = page.resource_version
            self._last_activity[namespace] = self._clock()
        self.replace(namespace, items, version)
        self._listed.add(namespace)
        self._mark_synced(namespace)

    async def _watch(self, namespace: str) -> None:
        events = self._client.watch(
            self.kind,
            namespace,
            self.last_sync_version(namespace),
            seconds=int(self._options.watch_timeout * (1 + self._options.jitter())),
            idle_timeout=self._options.watch_idle_timeout,
            labels=self.labels,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    self._handle_event(namespace, event)
                    self._last_activity[namespace] = self._clock()
                    self._errors.pop(namespace, None)
        except errors.StreamInterrupted as interrupted:
            if interrupted.duration >= self._options.min_watch_lifetime:
                self._last_activity[namespace] = self._clock()
            raise

    def _handle_event(self, namespace: str, event: WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED"):
            known, version = self.get(event.key), event.resource_version
            if known is not None and known.metadata.resource_version == version:
                return self.bookmark(namespace, version)  # most often an own write, whose response was faster
            if (new := self._decode(event.object)) is not None:
                return self.update(namespace, new)
        if event.type == "DELETED":
            return self.delete(namespace, _decode_metadata(event.object))
        return self.bookmark(namespace, event.resource_version)  # also for an object that cannot be decoded

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """Decode an object, or return None. The cache then keeps its last valid state, so that it is not deleted."""
        try:
            return self.kind.type.decode(raw)
        except (ValueError, TypeError, KeyError) as error:
            self._undecodable.inc()
            log.error("cannot decode %s %s: %s", self.kind.name, _decode_metadata(raw).key, error)
            return None

    def _record_missing_kind(self, namespace: str) -> None:
        self.clear(namespace)
        self._listed.discard(namespace)
        if self._optional:
            self._mark_synced(namespace)
        else:
            error = f"the API server does not serve {self.kind}: install its CustomResourceDefinition"
            self._set_error(namespace, error)
        self._last_activity[namespace] = self._clock()

    def _mark_synced(self, namespace: str) -> None:
        self._errors.pop(namespace, None)
        self._synced_namespaces.add(namespace)
        if self._synced_namespaces.issuperset(self._namespaces):
            self.synced.set()

    def _set_error(self, namespace: str, error: str) -> None:
        if error != self._errors.get(namespace):
            log.warning("watching %s: %s", self.kind, error)
        self._errors[namespace] = error


def _decode_metadata(raw: msgspec.Raw) -> Object:
    try:
        return Object.decode(raw)
    except ValueError as error:
        raise errors.invalid_response(error) from error
