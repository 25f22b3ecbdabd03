"""What tests of every part share."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(check: Callable[[], Awaitable[T]], timeout: float = 10) -> T: ...  # noqa: ASYNC109
@overload
async def eventually(check: Callable[[], T], timeout: float = 10) -> T: ...  # noqa: ASYNC109
async def eventually(check: Callable[[], T | Awaitable[T]], timeout: float = 10) -> T:  # noqa: ASYNC109
    """The first truthy answer of `check`, for what cannot be awaited.

    An AssertionError within `check` counts as "not yet"; the last one is raised when the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            answer = check()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            failure = AssertionError(f"still {answer!r} after {timeout:g} s")
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
