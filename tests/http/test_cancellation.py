"""No connection outlives its session, on asyncio and on uvloop."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from coder_k8s.dev.certificates import Authority
from coder_k8s.http.connection import Connection
from coder_k8s.kube.config import Config, load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.support import eventually


class SilentServer(Thread):
    """A TLS server that reads one request and never responds."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = Event()
        self.stop = Event()

    def run(self) -> None:
        with (
            suppress(OSError),  # the client may be gone before the end of the handshake
            self._listener,
            self._listener.accept()[0] as accepted,
            self._context.wrap_socket(accepted, server_side=True) as connection,
        ):
            connection.recv(4096)
            self.received.set()
            self.stop.wait(60)


def connections_to(port: int) -> int:
    """Return how many sockets of this process are connected to a port."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, or not connected
            if str(link.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as one:
                    count += one.family == socket.AF_INET and one.getpeername()[1] == port
    return count


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca", datetime.now(UTC))


@pytest.fixture
def server(authority: Authority) -> Iterator[SilentServer]:
    pair = authority.serving("server", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    server = SilentServer(context)
    server.start()
    yield server
    server.stop.set()
    server.join()


@pytest.fixture
def config(tmp_path: Path, authority: Authority, server: SilentServer) -> Config:
    return load(kubeconfig(tmp_path / "kubeconfig", server.port, authority.certificate))


async def test_a_request_is_cancelled(server: SilentServer, config: Config) -> None:
    async with Http(config, "test", Metrics()) as http:
        request = asyncio.create_task(http.send("GET", "/", {}, {}))
        await eventually(server.received.is_set)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request
        await eventually(lambda: connections_to(server.port) == 0)


async def test_a_request_is_cancelled_right_after_the_handshake(
    server: SilentServer, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Connection.connection_made

    def cancel(connection: Connection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        request.cancel()

    monkeypatch.setattr(Connection, "connection_made", cancel)
    async with Http(config, "test", Metrics()) as http:
        request = asyncio.create_task(http.send("GET", "/", {}, {}))
        with pytest.raises(asyncio.CancelledError):
            await request
        await eventually(lambda: connections_to(server.port) == 0, timeout=10)  # TLS would wait 30 s for the server


def kubeconfig(path: Path, port: int, authority: Path) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    context = {"cluster": "one", "user": "anonymous"}
    content = {
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "one", "context": context}],
    }
    path.write_text(yaml.safe_dump(content))
    return path
