import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.config import load
from coder_k8s.kube.discovery import NotReachable, missing_kinds, wait_for_server
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind, Object
from tests.kube import kubeconfigs

Responder = Callable[[], web.Response]


@asynccontextmanager
async def at(url: str, folder: Path) -> AsyncIterator[Http]:
    async with Http(load(kubeconfigs.write(folder / "config", {"server": url})), "test", Metrics()) as http:
        yield http


@asynccontextmanager
async def server(respond: Responder, folder: Path) -> AsyncIterator[Http]:
    """Serve the same responder on every path."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return respond()

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with at("http://{}:{}".format(*runner.addresses[0][:2]), folder) as http:
        yield http
    await runner.cleanup()


async def wait(http: Http, within: float = 0.5, stopping: asyncio.Event | None = None) -> None:
    await wait_for_server(http, "http://it", stopping or asyncio.Event(), within)


async def test_waits_for_a_server_that_restarts(tmp_path: Path) -> None:
    responses = iter([web.Response(status=503), web.Response(status=500, text="etcd"), web.json_response({})])
    async with server(lambda: next(responses), tmp_path) as http:
        await wait(http, within=5)
    assert next(responses, None) is None


async def test_a_403_response_is_enough(tmp_path: Path) -> None:
    async with server(lambda: web.json_response({"code": 403, "reason": "Forbidden"}, status=403), tmp_path) as http:
        await wait(http)


async def test_rejected_credentials_fail_at_once(tmp_path: Path) -> None:
    async with server(lambda: web.json_response({"code": 401}, status=401), tmp_path) as http:
        with pytest.raises(NotReachable, match="rejects the credentials"):
            await wait(http, within=60)


async def test_a_server_that_never_responds_times_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with at("http://{}:{}".format(*silent.getsockname()), tmp_path) as http:
            began = time.monotonic()
            with pytest.raises(NotReachable, match="no response from the API server at http://it"):
                await wait(http)
            assert time.monotonic() - began < 2


async def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    stopping = asyncio.Event()

    def respond() -> web.Response:
        stopping.set()
        return web.Response(status=503)

    async with server(respond, tmp_path) as http, asyncio.timeout(5):
        await wait(http, within=60, stopping=stopping)


async def test_which_kinds_are_missing(cluster: ClusterAccess) -> None:
    unknown_group = Kind("unknown.example", "v1", "Nothing", "nothings", Object)
    unknown_plural = Kind("apps", "v1", "Deployment", "deploymints", Object)
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        assert await missing_kinds(http, [CONFIG_MAP, DEPLOYMENT, unknown_plural, unknown_group]) == [
            unknown_plural,
            unknown_group,
        ]
