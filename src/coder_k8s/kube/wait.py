"""Waiting for the first of several events."""

import asyncio


async def wait_any(*events: asyncio.Event, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it is no failure
    """Return when one of the events is set, or when the time is over."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
