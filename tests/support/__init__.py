"""Helpers for all tests."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, overload

T = TypeVar("T")

INTERVAL, REQUEST_INTERVAL, LONGEST_INTERVAL = 0.02, 0.1, 0.5
"""Seconds between two polls: a tenth of the time waited, within these limits.

Asynchronous checks send requests, each of which takes milliseconds of CPU; other checks are cheap.
"""


@overload
async def eventually(check: Callable[[], Awaitable[T]], timeout: float = 30) -> T: ...  # noqa: ASYNC109
@overload
async def eventually(check: Callable[[], T], timeout: float = 30) -> T: ...  # noqa: ASYNC109
async def eventually(check: Callable[[], T | Awaitable[T]], timeout: float = 30) -> T:  # noqa: ASYNC109
    """Poll `check` until it returns a truthy value, and return that value.

    An AssertionError in `check` also means "not yet"; the last one is raised on timeout.
    """
    start, shortest = time.monotonic(), INTERVAL
    while True:
        try:
            result = check()
            if inspect.isawaitable(result):
                shortest, result = REQUEST_INTERVAL, await result
            if result:
                return result
            failure = AssertionError(f"still {result!r} after {timeout:g} s")
        except AssertionError as error:
            failure = error
        waited = time.monotonic() - start
        if waited > timeout:
            raise failure
        await asyncio.sleep(min(max(shortest, waited / 10), LONGEST_INTERVAL))


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie process does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
