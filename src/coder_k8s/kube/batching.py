"""Handles messages of the API server in batches while many of them arrive."""

import asyncio
import math
import time
from collections.abc import Callable

BATCH = 8
"""Messages that are enough for one batch."""
MIN_BATCH = 4
"""Fewer messages are not worth a pause."""
MAX_PAUSE = 0.03
"""Seconds. A reconcile takes a few round trips, and each of them can be this much longer."""
MAX_PART = 0.5
"""The longest pause, relative to the duration of a fast request. The API server processes other requests meanwhile."""

WINDOW = 0.25
"""Seconds over which the rate is measured. The messages for a single new control plane are not many."""
FASTER, SLOWER = 0.25, 0.02
"""The weight of a request that is faster or slower than the others."""
MEASURE_INTERVAL = 1.0
"""Seconds after which there is no pause until a request has been measured without one."""
SETTLE = 0.001
"""Seconds in which the work that a message causes is done, and the requests that follow from it are sent."""


def pause(rate: float, latency: float) -> float:
    """Return for how long to let messages collect, in seconds.

    `rate` is the number of messages per second, `latency` the seconds that a fast request takes without pauses. The
    longest pause is MAX_PAUSE, and MAX_PART of the latency.

    | the longest pause would collect | pause                       |
    |---------------------------------|-----------------------------|
    | fewer than MIN_BATCH messages   | none                        |
    | fewer than BATCH messages       | the longest                 |
    | more                            | the time for BATCH messages |
    """
    longest = min(MAX_PAUSE, MAX_PART * latency)
    if rate * longest < MIN_BATCH:
        return 0.0
    return min(longest, BATCH / rate)


class Rate:
    """The number of messages per second. Older messages count less."""

    def __init__(self) -> None:
        self._recent = 0.0
        self._last = 0.0

    def count(self, now: float, messages: int = 1) -> float:
        """Count messages, and return the rate."""
        self._recent = messages + self._recent * math.exp((self._last - now) / WINDOW)
        self._last = now
        return self._recent / WINDOW


class Latency:
    """How long a fast request takes without pauses, in seconds. Pauses must not depend on delays that they cause.

    Slow requests hardly count: they wait for something else, and a pause would only add to that. To create a Role takes
    100 ms, in which the API server does nothing (docs/performance.md).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Zero before the first request."""
        self.resumed = 0.0
        """When the last pause ended. Requests that were sent earlier are not counted."""
        self._measured = 0.0

    def count(self, now: float, seconds: float) -> None:
        """Count a request. Older requests count less."""
        known = self.seconds or seconds
        self.seconds = known + (seconds - known) * (FASTER if seconds < known else SLOWER)
        self._measured = now

    def is_current(self, now: float) -> bool:
        """Whether a request has been measured recently."""
        return now - self._measured < MEASURE_INTERVAL


class Batching:
    """Pauses the event loop while many messages arrive; the sockets keep them meanwhile.

    To wake up for a single message costs about as much CPU time as to handle it (docs/performance.md).
    """

    def __init__(
        self, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._rate = Rate()
        self._latency = Latency()
        self._messages = 0
        """How many have arrived since the rate was computed."""
        self._busy = False
        """Whether there was a pause then: the rate is computed again with the first message that follows."""
        self._scheduled = False

    def count(self, sent: float | None = None) -> None:
        """Count a message that has arrived, and schedule a pause if there are many.

        `sent` is the time of the request; `None` for a part of a watch.
        """
        self._messages += 1
        if sent is not None and sent >= self._latency.resumed:
            now = self._clock()
            self._latency.count(now, now - sent)
        if not self._scheduled and (self._busy or self._messages >= MIN_BATCH):
            self._schedule()

    def _schedule(self) -> None:
        now = self._clock()
        seconds = pause(self._rate.count(now, self._messages), self._latency.seconds)
        self._messages = 0
        self._busy = self._scheduled = bool(seconds) and self._latency.is_current(now)
        if self._scheduled:
            asyncio.get_running_loop().call_later(SETTLE, self._pause, seconds)

    def _pause(self, seconds: float) -> None:
        self._scheduled = False
        self._sleep(seconds)
        self._latency.resumed = self._clock()
