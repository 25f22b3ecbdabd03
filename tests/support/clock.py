"""Clocks that tests advance."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A date and time that tests advance."""

    def __init__(self, time: datetime = START) -> None:
        self.time = time

    @classmethod
    def at_present(cls) -> Self:
        """A clock that starts at the current time, like the timestamps of the API server."""
        return cls(datetime.now(UTC).replace(microsecond=0))

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **spans: float) -> None:
        self.time += timedelta(**spans)


class SystemClock(Clock):
    """The system time."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)


class FakeTimer:
    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call = call
        self.cancelled = False

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """The clock of an event loop; `advance` runs the timers that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> FakeTimer:
        timer = FakeTimer(when, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in sorted(self.timers, key=FakeTimer.when):
            if timer.due <= self.now and not timer.cancelled:
                timer.cancelled = True
                timer.call()
        self.timers = [timer for timer in self.timers if not timer.cancelled]
