"""Waits for events."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def wait_any(*events: asyncio.Event, timeout: float | None = None) -> None:  # noqa: ASYNC109 - a timeout is not an error
    """Return when one of the events is set or the timeout has passed."""
    if any(event.is_set() for event in events):
        return
    waiters = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()


async def cancel_on_stop(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run the work, and cancel it on shutdown: a request to an API server that hangs can outlast the grace period."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        stopped.cancel()
