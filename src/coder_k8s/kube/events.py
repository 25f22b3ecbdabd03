"""Events (`events.k8s.io/v1`): what happened to an object and why, for whoever runs `kubectl describe`.

Telling costs the caller nothing: it is noted in memory and written in the background. A repeat of the same words about
the same object is not another event but counts up a series: the second is written at once, later ones at most once
in `PERIOD`, and a silence of more than `WINDOW` ends the series. Each object may have `BURST` new events and then one
in `REFILL`, so that words that differ every time cannot flood the API server. What is not written is counted.
"""

import asyncio
import heapq
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal, NamedTuple

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
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
"""Events that may wait to be written."""
NAME_LIMIT = 253
NOTE_LIMIT = 1024
"""Bytes, not characters."""


class Fact(NamedTuple):
    """What is told; the same told again is a repeat."""

    api_version: str
    kind: str
    key: Key
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    action: str


@dataclass(eq=False)
class Series:
    """A fact that was told once or more, and how much of that the API server knows."""

    fact: Fact
    name: str
    first: datetime
    last: datetime
    not_before: datetime
    told: int = 1
    written: int = 0
    waiting: bool = False


class EventCorrelator:
    """Decides what is to be written and when, knowing time only as an argument."""

    def __init__(self, unique: Callable[[], str], capacity: int = CAPACITY) -> None:
        self._unique = unique
        self._capacity = capacity
        self._series: dict[Fact, Series] = {}
        self._allowance: dict[str, datetime] = {}
        self._waiting: list[tuple[datetime, int, Series]] = []
        self._order = count()
        self._tidy_at = datetime.min.replace(tzinfo=UTC)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due(self) -> datetime | None:
        """When the next one is to be written, if one waits."""
        return self._waiting[0][0] if self._waiting else None

    def tell(self, fact: Fact, now: datetime) -> str | None:
        """Take note; returns why not, if not."""
        self._tidy(now)
        series = self._series.get(fact)
        if series and now - series.last <= WINDOW:
            series.told += 1
            series.last = now
            return None if series.waiting else self._wait(series, max(now, series.not_before))
        if len(self._waiting) >= self._capacity:
            return "queue_full"
        if not self._allow(fact.uid, now):
            return "rate_limited"
        self._series[fact] = series = Series(fact, _name(fact.key.name, self._unique()), now, now, now)
        return self._wait(series, now)

    def take(self, now: datetime | None = None) -> Series | None:
        """The next one to be written now, or the next one at all when no time is given."""
        if not self._waiting or (now and now < self._waiting[0][0]):
            return None
        _, _, series = heapq.heappop(self._waiting)
        series.waiting = False
        if now and series.told > 1:
            series.not_before = now + PERIOD
        return series

    def put_back(self, series: Series) -> None:
        """Its write was given up half-way; a repeat may have queued it again by now."""
        if not series.waiting:
            self._push(series, series.last)

    def _wait(self, series: Series, due: datetime) -> str | None:
        if len(self._waiting) >= self._capacity:
            return "queue_full"
        self._push(series, due)
        return None

    def _push(self, series: Series, due: datetime) -> None:
        series.waiting = True
        heapq.heappush(self._waiting, (due, next(self._order), series))

    def _allow(self, uid: str, now: datetime) -> bool:
        """A token bucket, kept as the time at which it will be full again."""
        full_at = max(self._allowance.get(uid, now), now) + REFILL
        if full_at > now + BURST * REFILL:
            return False
        self._allowance[uid] = full_at
        return True

    def _tidy(self, now: datetime) -> None:
        """Forget what no longer matters."""
        if now < self._tidy_at:
            return
        self._tidy_at = now + PERIOD
        self._series = {f: s for f, s in self._series.items() if s.waiting or now - s.last <= WINDOW}
        self._allowance = {uid: full_at for uid, full_at in self._allowance.items() if full_at > now}


class Recorder:
    """Tells of events in the name of one process; to be used from its event loop only."""

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
        self._ledger = EventCorrelator(unique, capacity)
        self._news = asyncio.Event()
        self._writing = False

    @property
    def resting(self) -> bool:
        """Whether all that is due has been written."""
        due = self._ledger.due
        return not self._writing and (due is None or due > self._now())

    def normal(self, kind: Kind[Any], regarding: Object, reason: str, note: str, action: str = "Reconcile") -> None:
        """Tell of something that went as it should."""
        self._tell(kind, regarding, "Normal", reason, note, action)

    def warning(self, kind: Kind[Any], regarding: Object, reason: str, note: str, action: str = "Reconcile") -> None:
        """Tell of something that somebody may have to look at."""
        self._tell(kind, regarding, "Warning", reason, note, action)

    async def run(self) -> None:
        """Write what is told, until cancelled."""
        while True:
            self._news.clear()
            while series := self._ledger.take(self._now()):
                await self._write(series)
            due = self._ledger.due
            wait = max(0, (due - self._now()).total_seconds()) if due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()

    async def flush(self, within: float) -> None:
        """Write all that waits, due or not, for at most so many seconds: the last thing before the process ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while series := self._ledger.take():
                    await self._write(series)
        self._drop("shutdown", len(self._ledger))

    def _tell(
        self,
        kind: Kind[Any],
        regarding: Object,
        type: Literal["Normal", "Warning"],  # noqa: A002 - Kubernetes' own word
        reason: str,
        note: str,
        action: str,
    ) -> None:
        uid = regarding.metadata.uid
        fact = Fact(kind.api_version, kind.name, regarding.key, uid, type, reason, _cut(note), action)
        if refusal := self._ledger.tell(fact, self._now()):
            self._drop(refusal)
        self._news.set()

    async def _write(self, series: Series) -> None:
        told = series.told
        self._writing = True
        try:
            await self._send(series)
        except errors.KubeError as trouble:
            lost = f" ({series.fact.note})" if series.fact.type == "Warning" else ""  # which nothing else may report
            log.warning("cannot write event %s of %s%s: %s", series.fact.reason, series.fact.key, lost, trouble)
            self._drop("failed")
        except asyncio.CancelledError:
            self._ledger.put_back(series)
            raise
        else:
            series.written = told
        finally:
            self._writing = False

    async def _send(self, series: Series) -> None:
        event = self._event(series)
        if series.written:
            with suppress(errors.NotFound):  # it outlived its time to live: it is created again
                await self._client.merge(EVENT, Key(_namespace(series.fact), series.name), {"series": event["series"]})
                return
        with suppress(errors.AlreadyExists):  # by a write whose answer got lost
            await self._client.create(EVENT, event)

    def _event(self, series: Series) -> Manifest:
        fact = series.fact
        regarding = {"apiVersion": fact.api_version, "kind": fact.kind, "name": fact.key.name, "uid": fact.uid}
        if fact.key.namespace:
            regarding["namespace"] = fact.key.namespace
        event: Manifest = {
            "metadata": {"namespace": _namespace(fact), "name": series.name},
            "eventTime": micro_timestamp(series.first),
            "type": fact.type,
            "reason": fact.reason,
            "note": fact.note,
            "action": fact.action,
            "regarding": regarding,
            **self._reporter,
        }
        if series.told > 1:
            event["series"] = {"count": series.told, "lastObservedTime": micro_timestamp(series.last)}
        return event

    def _drop(self, why: str, number: int = 1) -> None:
        self._metrics.events_dropped.labels(why).inc(number)


def _namespace(fact: Fact) -> str:
    """An event has a namespace also when what it is about has none."""
    return fact.key.namespace or "default"


def _name(name: str, suffix: str) -> str:
    return f"{name[: NAME_LIMIT - len(suffix) - 1].rstrip('.-')}.{suffix}"


def _cut(note: str) -> str:
    encoded = note.encode(errors="replace")
    if len(encoded) <= NOTE_LIMIT:
        return encoded.decode()
    return encoded[: NOTE_LIMIT - len("…".encode())].decode(errors="ignore") + "…"
