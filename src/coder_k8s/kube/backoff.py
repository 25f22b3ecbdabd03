"""How long to wait before trying again."""

import random
from collections.abc import Callable


class Backoff:
    """Doubling waits up to a cap, with jitter so that those who failed together do not return together."""

    def __init__(self, first: float, cap: float, jitter: Callable[[], float] = random.random) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter

    def delay(self, failures: int) -> float:
        """The wait after this many failures in a row: between half of the full wait and all of it."""
        full = min(self._cap, self._first * 2.0 ** min(failures - 1, 62))
        return full * (0.5 + self._jitter() / 2)
