"""The sockets of a session of the HTTP library, all of which are closed when it is."""

import asyncio
import socket
from contextlib import suppress
from typing import Self
from weakref import WeakSet

import aiohttp

CLOSE_TIMEOUT = 2.0


class Sockets:
    """Opens the sockets of the session within it, and leaves none open that the session forgets.

    A connection whose request was called off says goodbye by TLS and waits for an answer. It must not outlive the loop.
    """

    def __init__(self) -> None:
        self._opened: WeakSet[socket.socket] = WeakSet()

    def open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        self._opened.add(opened)
        return opened

    def left(self) -> list[socket.socket]:
        return [each for each in self._opened if each.fileno() != -1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what is still open: whoever reads from a socket that is shut down closes it."""
        for each in self.left():
            with suppress(OSError):  # it is not connected yet
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while self.left():  # noqa: ASYNC110 - a socket tells nobody
                    await asyncio.sleep(0.005)
