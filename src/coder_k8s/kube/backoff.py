"""Exponential back-off."""

import random
from collections.abc import Callable


class Backoff:
    """Doubles the delay after each failure up to a cap, with jitter that spreads retries."""

    def __init__(self, first: float, cap: float, jitter: Callable[[], float] = random.random) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter

    def delay(self, failures: int) -> float:
        """Return the delay after this many failures in a row: 50 to 100 percent of the full delay."""
        full = min(self._cap, self._first * 2.0 ** min(failures - 1, 62))
        return full * (0.5 + self._jitter() / 2)
