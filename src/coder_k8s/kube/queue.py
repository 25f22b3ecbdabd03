"""A work queue with two priorities, delays and back-off."""

import asyncio
import sys
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

import msgspec

from coder_k8s.kube.backoff import Backoff

K = TypeVar("K")

MAX_HIGH_PRIORITY_STREAK = 16
"""After this many keys of high priority, one of low priority is next, so that it does not starve."""


class Handle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The clock and timers of an event loop."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: object, *args: object) -> Handle: ...


class Timer(msgspec.Struct, frozen=True):
    """When a key is queued. The handle does not know it: that of uvloop has no time if the delay is zero."""

    due: float
    handle: Handle


class WorkQueue(Generic[K]):
    """Gives each queued key to one worker at a time.

    A key that is added while a worker processes it is queued again when the worker is done. So no change is missed,
    and no key is processed concurrently. Changes of the reconciled object have high priority, all others have low
    priority. At most `low_priority_limit` keys of low priority are processed at a time, so that workers are left for
    high priority. `get` cancels the timer of the key, because the reconcile sets a new one.
    """

    def __init__(
        self, clock: Clock | None = None, backoff: Backoff | None = None, *, low_priority_limit: int = sys.maxsize
    ) -> None:
        self._clock = clock or asyncio.get_running_loop()
        self._backoff = backoff or Backoff(0.05, 300.0)
        self._high: OrderedDict[K, float] = OrderedDict()
        self._low: OrderedDict[K, float] = OrderedDict()
        self._low_left = low_priority_limit
        """How many more keys of low priority may be processed now."""
        self._processing: dict[K, bool] = {}
        """Whether the key was taken with high priority."""
        self._dirty: dict[K, bool] = {}
        self._timers: dict[K, Timer] = {}
        self._failures: dict[K, int] = {}
        self._available = asyncio.Semaphore(0)
        """Counts the keys that may be taken now: those of high priority, and up to `_low_left` of low priority."""
        self._streak = 0
        self.last_wait = 0.0
        """Seconds that the last key waited in the queue."""

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    @property
    def idle(self) -> bool:
        """Whether no key waits for a worker or is with one, and no timer has expired."""
        now = self._clock.time()
        return not (len(self) or self._processing or any(timer.due <= now for timer in self._timers.values()))

    def next_due(self, key: K) -> float | None:
        """Seconds until the timer of the key expires; None without a timer."""
        timer = self._timers.get(key)
        return None if timer is None else timer.due - self._clock.time()

    def add(self, key: K, *, high_priority: bool = True) -> None:
        """Queue the key, unless it is queued."""
        if key in self._processing:
            self._dirty[key] = high_priority or self._dirty.get(key, False)
        elif key in self._low and high_priority:
            if len(self._low) > self._low_left:  # else it may be taken already
                self._available.release()
            self._high[key] = self._low.pop(key)
        elif key not in self._high and key not in self._low:
            if high_priority or len(self._low) < self._low_left:
                self._available.release()
            (self._high if high_priority else self._low)[key] = self._clock.time()

    def add_after(self, key: K, delay: float) -> None:
        """Queue the key after a delay; the shortest delay wins."""
        due = self._clock.time() + delay
        timer = self._timers.get(key)
        if timer is not None and timer.due <= due:
            return
        if timer is not None:
            timer.handle.cancel()
        self._timers[key] = Timer(due, self._clock.call_at(due, self._timer_expired, key))

    def retry(self, key: K) -> float:
        """Queue the key with back-off after a failed reconcile; return the delay."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the back-off of the key after a successful reconcile."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key. The caller must call `done` when it has processed the key."""
        await self._available.acquire()
        high_priority = self._is_high_next()
        key, since = (self._high if high_priority else self._low).popitem(last=False)
        self.last_wait = self._clock.time() - since
        self._processing[key] = high_priority
        if not high_priority:
            self._low_left -= 1
        if (timer := self._timers.pop(key, None)) is not None:
            timer.handle.cancel()
        return key

    def done(self, key: K) -> None:
        if not self._processing.pop(key):
            if len(self._low) > self._low_left:
                self._available.release()
            self._low_left += 1
        if key in self._dirty:
            self.add(key, high_priority=self._dirty.pop(key))

    def _is_high_next(self) -> bool:
        low_may_be_taken = self._low and self._low_left
        if self._high and (not low_may_be_taken or self._streak < MAX_HIGH_PRIORITY_STREAK):
            self._streak += 1
            return True
        self._streak = 0
        return False

    def _timer_expired(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key, high_priority=False)
