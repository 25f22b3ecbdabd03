"""No connection outlives its session, on asyncio and on uvloop."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest
import uvloop
import yaml

from coder_k8s.dev.certificates import Authority
from coder_k8s.kube.config import load
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


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_cancelled_request(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca", datetime.now(UTC))
    pair = authority.serving("server", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    server = SilentServer(context)
    server.start()
    config = load(kubeconfig(tmp_path / "kubeconfig", server.port, authority.certificate))

    async def cancel_request() -> None:
        async with Http(config, "test", Metrics()) as http:
            request = asyncio.create_task(http.send("GET", "/", {}, {}))
            await eventually(server.received.is_set)
            request.cancel()
            with suppress(asyncio.CancelledError):
                await request
            await eventually(lambda: connections_to(server.port) == 0)

    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(cancel_request())
    finally:
        server.stop.set()
        server.join()


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
