"""Which keys wait for a worker."""

import asyncio
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from coder_k8s.kube.backoff import Backoff

K = TypeVar("K")

FAIRNESS = 16
"""One key of the slow lane is served after this many of the fast one, so that neither starves."""


class Handle(Protocol):
    """Something scheduled that can be called off."""

    def cancel(self) -> None: ...
    def when(self) -> float: ...


class Clock(Protocol):
    """The part of an event loop that knows the time."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: object, *args: object) -> Handle: ...


class WorkQueue(Generic[K]):
    """Hands out each waiting key once, to one worker at a time.

    A key that is added while a worker has it waits until that worker is done, and is then handed out again: no change
    is missed and no key has two workers. Whatever wakes the user's own change goes into the fast lane; the rest,
    however much it is, waits behind it. Handing a key out calls off its timer, because the pass that begins decides
    anew.
    """

    def __init__(self, clock: Clock | None = None, backoff: Backoff | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop()
        self._backoff = backoff or Backoff(0.05, 300.0)
        self._fast: OrderedDict[K, float] = OrderedDict()
        self._slow: OrderedDict[K, float] = OrderedDict()
        self._busy: set[K] = set()
        self._again: dict[K, bool] = {}
        self._timers: dict[K, Handle] = {}
        self._failures: dict[K, int] = {}
        self._waiting = asyncio.Semaphore(0)
        self._streak = 0
        self.waited = 0.0
        """How long the key that was handed out last had waited."""

    def __len__(self) -> int:
        return len(self._fast) + len(self._slow)

    @property
    def idle(self) -> bool:
        """Whether no key waits for a worker or is with one, and no timer has expired."""
        now = self._clock.time()
        return not (len(self) or self._busy or any(timer.when() <= now for timer in self._timers.values()))

    def next_due(self, key: K) -> float | None:
        """Seconds until the timer of the key expires; None without a timer."""
        timer = self._timers.get(key)
        return None if timer is None else timer.when() - self._clock.time()

    def add(self, key: K, *, fast: bool = True) -> None:
        """The key needs a pass."""
        if key in self._busy:
            self._again[key] = fast or self._again.get(key, False)
        elif key in self._slow and fast:
            self._fast[key] = self._slow.pop(key)
        elif key not in self._fast and key not in self._slow:
            (self._fast if fast else self._slow)[key] = self._clock.time()
            self._waiting.release()

    def add_after(self, key: K, delay: float) -> None:
        """The key needs a pass by then; the earliest such wish counts."""
        due = self._clock.time() + delay
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = self._clock.call_at(due, self._due, key)

    def retry(self, key: K) -> float:
        """The pass failed: another one, after a wait that doubles from failure to failure."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The pass succeeded: the next failure is a first one."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key, which is the caller's until `done`."""
        await self._waiting.acquire()
        lane = self._lane()
        key, since = lane.popitem(last=False)
        self.waited = self._clock.time() - since
        self._busy.add(key)
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        return key

    def done(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._again:
            self.add(key, fast=self._again.pop(key))

    def _lane(self) -> OrderedDict[K, float]:
        if self._fast and (not self._slow or self._streak < FAIRNESS):
            self._streak += 1
            return self._fast
        self._streak = 0
        return self._slow

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key, fast=False)
