"""The clock of a simulation, and what happens when."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

EPOCH = datetime(2026, 11, 16, tzinfo=UTC)
"""A Monday; times of a simulation are seconds since then."""

Action = Callable[[], None]


def moment(seconds: float) -> datetime:
    """A time of the simulation as a date."""
    return EPOCH + timedelta(seconds=seconds)


class Agenda:
    """Runs actions in the order of their times; those at the same time in the order in which they were added."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self._order = count()
        self._actions: list[tuple[float, int, Action]] = []

    def at(self, time: float, action: Action) -> None:
        heapq.heappush(self._actions, (max(time, self.now), next(self._order), action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def every(self, seconds: float, action: Action, first: float = 0.0) -> None:
        """Repeat an action, for the first time after `first` seconds."""

        def repeat() -> None:
            action()
            self.after(seconds, repeat)

        self.after(first, repeat)

    def run(self, until: float) -> None:
        """Run all actions up to a time."""
        while self._actions and self._actions[0][0] <= until:
            self.now, _, action = heapq.heappop(self._actions)
            action()
        self.now = until
