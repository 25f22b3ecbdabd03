"""The result of a check."""

from collections.abc import Sequence
from typing import NamedTuple

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
SHOWN = 3


class Result(NamedTuple):
    """Whether a check passed, and for a failure what to do."""

    name: str
    outcome: str
    message: str


def summary(items: Sequence[str]) -> str:
    """Return the first items, and how many more there are."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
