"""Closes all sockets of an aiohttp session."""

import asyncio
import socket
from contextlib import suppress
from typing import Self
from weakref import WeakSet

import aiohttp

CLOSE_TIMEOUT = 2.0


class Sockets:
    """Opens the sockets of a session, and closes those that the session leaves open.

    After a request is cancelled, aiohttp sends a TLS shutdown and waits for the peer. Without this class that
    connection can outlive the event loop.
    """

    def __init__(self) -> None:
        self._opened: WeakSet[socket.socket] = WeakSet()

    def open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        self._opened.add(opened)
        return opened

    def still_open(self) -> list[socket.socket]:
        return [each for each in self._opened if each.fileno() != -1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Shut down open sockets; their reader then closes them."""
        for each in self.still_open():
            with suppress(OSError):  # not connected yet
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while self.still_open():  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.005)
