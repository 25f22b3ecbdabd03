"""No connection outlives its session, even if nobody answers its farewell."""

import asyncio
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import aiohttp
import pytest

from coder_k8s.dev.certificates import Authority
from coder_k8s.kube.sockets import Sockets
from tests.support import eventually


class Silent:
    """A server that hears one request and never says anything but what TLS makes it say."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = Event()
        self.gone = Event()

    def serve(self) -> None:
        with (
            self._listener,
            self._listener.accept()[0] as accepted,
            self._context.wrap_socket(accepted, server_side=True) as connection,
        ):
            connection.recv(4096)
            self.asked.set()
            self.gone.wait(10)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca", datetime.now(UTC))


async def test_a_request_that_is_called_off(authority: Authority) -> None:
    pair = authority.serving("server", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    server = Silent(context)
    serving = asyncio.create_task(asyncio.to_thread(server.serve))
    sockets, trust = Sockets(), ssl.create_default_context(cafile=authority.certificate)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=sockets.open)) as session:
        request = asyncio.create_task(session.get(server.url, ssl=trust))
        await eventually(server.asked.is_set)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request
    assert sockets.left(), "the library closes all by itself: Sockets is not needed any more"
    await sockets.close()
    assert not sockets.left()
    server.gone.set()
    await serving
