"""Time that passes when a test says so, for what schedules calls."""

from collections.abc import Callable
from typing import Any


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
    """Time that passes when a test says so."""

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
