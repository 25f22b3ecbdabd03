"""Records events (`events.k8s.io/v1`).

Recording an event does not block: a background task writes it. Repeats of an event become a series. The second
occurrence is written at once, later ones at most once per `PERIOD`. A series ends after `WINDOW` without a repeat.
Each object may have `BURST` new events, then one per `REFILL`. Dropped events are counted in a metric.
"""

import asyncio
import heapq
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal, Self

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.messages import stable
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, micro_timestamp
from coder_k8s.kube.rules import Rule

log = logging.getLogger(__name__)

EVENT = Kind("events.k8s.io", "v1", "Event", "events", Object)
RULES = (Rule(groups=(EVENT.group,), resources=(EVENT.plural,), verbs=("create", "patch")),)

WINDOW = timedelta(minutes=6)
PERIOD = timedelta(minutes=1)
BURST = 25
REFILL = timedelta(seconds=30)
CAPACITY = 1000
"""Maximum number of queued events."""
NAME_LIMIT = 253
NOTE_LIMIT = 1024
"""Bytes, not characters."""


class EventKey(msgspec.Struct, frozen=True):
    """What identifies an event; an event with the same key is a repeat."""

    api_version: str
    kind: str
    regarding: Key
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    action: str


class Series(msgspec.Struct, eq=False):
    """An event and its repeats; `written` is the count that the API server has."""

    key: EventKey
    name: str
    first: datetime
    last: datetime
    not_before: datetime
    count: int = 1
    written: int = 0
    queued: bool = False


class EventCorrelator:
    """Aggregates repeats, limits the rate, and queues events to write. It has no clock: the time is an argument."""

    def __init__(self, unique: Callable[[], str], capacity: int = CAPACITY) -> None:
        self._unique = unique
        self._capacity = capacity
        self._series: dict[EventKey, Series] = {}
        self._dropped: dict[EventKey, datetime] = {}
        """Events that the rate limit dropped, with the time of the last one."""
        self._buckets: dict[str, datetime] = {}
        self._queue: list[tuple[datetime, int, Series]] = []
        self._order = count()
        self._next_cleanup = datetime.min.replace(tzinfo=UTC)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def due(self) -> datetime | None:
        """When the next event is due, if one is queued."""
        return self._queue[0][0] if self._queue else None

    def is_repeat(self, key: EventKey, now: datetime) -> bool:
        """Return whether the event continues a series, also one that is dropped."""
        series = self._series.get(key)
        last = series.last if series else self._dropped.get(key)
        return last is not None and now - last <= WINDOW

    def record(self, key: EventKey, now: datetime) -> str | None:
        """Queue an event; return the reason if it is dropped."""
        self._clean_up(now)
        series = self._series.get(key)
        if series and now - series.last <= WINDOW:
            series.count += 1
            series.last = now
            return None if series.queued else self._enqueue(series, max(now, series.not_before))
        if len(self._queue) >= self._capacity:
            return "queue_full"
        if not self._allow(key.uid, now):
            self._dropped[key] = now
            return "rate_limited"
        self._dropped.pop(key, None)
        self._series[key] = series = Series(key, _name(key.regarding.name, self._unique()), now, now, now)
        return self._enqueue(series, now)

    def pop(self, now: datetime | None = None) -> Series | None:
        """Return the next series that is due, or the next one at all if no time is given."""
        if not self._queue or (now and now < self._queue[0][0]):
            return None
        _, _, series = heapq.heappop(self._queue)
        series.queued = False
        if now and series.count > 1:
            series.not_before = now + PERIOD
        return series

    def requeue(self, series: Series) -> None:
        """Queue a series again whose write was cancelled, unless a repeat has queued it."""
        if not series.queued:
            self._push(series, series.last)

    def _enqueue(self, series: Series, due: datetime) -> str | None:
        if len(self._queue) >= self._capacity:
            return "queue_full"
        self._push(series, due)
        return None

    def _push(self, series: Series, due: datetime) -> None:
        series.queued = True
        heapq.heappush(self._queue, (due, next(self._order), series))

    def _allow(self, uid: str, now: datetime) -> bool:
        """Take a token from the bucket of an object, which is stored as the time at which it is full again."""
        full_at = max(self._buckets.get(uid, now), now) + REFILL
        if full_at > now + BURST * REFILL:
            return False
        self._buckets[uid] = full_at
        return True

    def _clean_up(self, now: datetime) -> None:
        """Remove ended series and full buckets."""
        if now < self._next_cleanup:
            return
        self._next_cleanup = now + PERIOD
        self._series = {k: s for k, s in self._series.items() if s.queued or now - s.last <= WINDOW}
        self._dropped = {key: last for key, last in self._dropped.items() if now - last <= WINDOW}
        self._buckets = {uid: full_at for uid, full_at in self._buckets.items() if full_at > now}


class EventReason(str):
    """The reason of an event, with the type of all events of this reason."""

    type: Literal["Normal", "Warning"]

    def __new__(cls, name: str, type: Literal["Normal", "Warning"]) -> Self:  # noqa: A002 - the name of the field in Kubernetes
        self = super().__new__(cls, name)
        self.type = type
        return self


class Recorder:
    """Records events for one process. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        metrics: Metrics,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        unique: Callable[[], str] = lambda: secrets.token_hex(8),
        capacity: int = CAPACITY,
    ) -> None:
        self._client = client
        self._reporter = {"reportingController": controller, "reportingInstance": instance[:128]}
        self._metrics = metrics
        self._now = now
        self._correlator = EventCorrelator(unique, capacity)
        self._recorded = asyncio.Event()
        self._writing = False

    @property
    def idle(self) -> bool:
        """Whether all due events are written."""
        due = self._correlator.due
        return not self._writing and (due is None or due > self._now())

    def record(
        self,
        kind: Kind[Any],
        regarding: Object,
        reason: EventReason,
        note: str,
        action: str = "Reconcile",
        *,
        logged: bool = False,
    ) -> None:
        """Queue an event about an object, and log it unless the caller has logged it or it is a repeat."""
        uid, note = regarding.metadata.uid, _truncate(stable(note))
        key = EventKey(kind.api_version, kind.name, regarding.key, uid, reason.type, str(reason), note, action)
        now = self._now()
        if not logged and not self._correlator.is_repeat(key, now):
            level = logging.WARNING if key.type == "Warning" else logging.INFO
            log.log(level, "%s", note, extra={"reason": key.reason})
        if reason_dropped := self._correlator.record(key, now):
            self._drop(reason_dropped)
        self._recorded.set()

    async def run(self) -> None:
        """Write events when they are due, until cancelled."""
        while True:
            self._recorded.clear()
            while series := self._correlator.pop(self._now()):
                await self._write(series)
            due = self._correlator.due
            delay = max(0, (due - self._now()).total_seconds()) if due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._recorded.wait()

    async def flush(self, within: float) -> None:
        """Write all queued events before shutdown, due or not, and drop those that are left after `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while series := self._correlator.pop():
                    await self._write(series)
        self._drop("shutdown", len(self._correlator))

    async def _write(self, series: Series) -> None:
        key, count = series.key, series.count
        self._writing = True
        try:
            await self._send(series)
        except errors.KubeError as error:
            log.warning("cannot write event %s of %s: %s", key.reason, key.regarding, error)
            self._drop("failed")
        except asyncio.CancelledError:
            self._correlator.requeue(series)
            raise
        else:
            series.written = count
        finally:
            self._writing = False

    async def _send(self, series: Series) -> None:
        event = self._event(series)
        if series.written:
            with suppress(errors.NotFound):  # the event has expired: create it again
                await self._client.merge(EVENT, Key(_namespace(series.key), series.name), {"series": event["series"]})
                return
        with suppress(errors.AlreadyExists):  # the response to an earlier create was lost
            await self._client.create(EVENT, event)

    def _event(self, series: Series) -> Manifest:
        key = series.key
        regarding = {"apiVersion": key.api_version, "kind": key.kind, "name": key.regarding.name, "uid": key.uid}
        if key.regarding.namespace:
            regarding["namespace"] = key.regarding.namespace
        event: Manifest = {
            "metadata": {"namespace": _namespace(key), "name": series.name},
            "eventTime": micro_timestamp(series.first),
            "type": key.type,
            "reason": key.reason,
            "note": key.note,
            "action": key.action,
            "regarding": regarding,
            **self._reporter,
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": micro_timestamp(series.last)}
        return event

    def _drop(self, reason: str, number: int = 1) -> None:
        self._metrics.events_dropped.labels(reason).inc(number)


def _namespace(key: EventKey) -> str:
    """Return the namespace of an event: `default` for a cluster-scoped object."""
    return key.regarding.namespace or "default"


def _name(name: str, suffix: str) -> str:
    return f"{name[: NAME_LIMIT - len(suffix) - 1].rstrip('.-')}.{suffix}"


def _truncate(note: str) -> str:
    encoded = note.encode(errors="replace")
    if len(encoded) <= NOTE_LIMIT:
        return encoded.decode()
    return encoded[: NOTE_LIMIT - len("…".encode())].decode(errors="ignore") + "…"
