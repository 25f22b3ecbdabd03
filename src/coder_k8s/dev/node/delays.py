"""Delays between restarts of a container and between pulls of an image."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Delays:
    """Seconds; the defaults are those of a kubelet."""

    first: float = 10.0
    cap: float = 300.0
    reset: float = 600.0
    """A container that has run for this time starts again without a delay."""
    missing: float = 2.0
    """Time between two checks for a missing Secret or ConfigMap."""


def retry_delay(failures: int, delays: Delays) -> float:
    """Return the delay before the next attempt, after this many failures in a row.

    | failures | delay                             |
    |----------|-----------------------------------|
    | 0        | none                              |
    | 1        | `first`                           |
    | n        | doubled n - 1 times, up to `cap`  |
    """
    return min(delays.cap, delays.first * 2.0 ** min(failures - 1, 30)) if failures else 0.0


def restart_failures(failures: int | None, ran: float, delays: Delays) -> int:
    """Return the failures in a row after an exit; `None` before the first exit, after which there is no delay.

    | before          | ran                | failures         |
    |-----------------|--------------------|------------------|
    | never exited    | any time           | 0                |
    | exited          | `reset` or longer  | 0                |
    | exited          | shorter            | one more         |
    """
    return 0 if failures is None or ran >= delays.reset else failures + 1
