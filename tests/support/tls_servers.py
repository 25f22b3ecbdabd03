"""Stops servers of aiohttp that serve TLS."""

from aiohttp import web


async def stop(runner: web.BaseRunner) -> None:
    """Stop the server without waiting for its clients.

    `cleanup` alone begins to close TLS, which on uvloop keeps a connection open until the client responds.
    """
    assert runner.server is not None
    for connection in runner.server.connections:
        if connection.transport is not None:
            connection.transport.abort()
    await runner.cleanup()
