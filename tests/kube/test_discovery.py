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
from coder_k8s.kube.discovery import NotReachable, missing, wait_for_server
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind, Object
from tests.kube import kubeconfigs

Answer = Callable[[], web.Response]


@asynccontextmanager
async def at(url: str, folder: Path) -> AsyncIterator[Http]:
    async with Http(load(kubeconfigs.write(folder / "config", {"server": url})), "test", Metrics()) as http:
        yield http


@asynccontextmanager
async def server(answer: Answer, folder: Path) -> AsyncIterator[Http]:
    """Something that answers any request like this."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return answer()

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with at("http://{}:{}".format(*runner.addresses[0][:2]), folder) as http:
        yield http
    await runner.cleanup()


async def wait(http: Http, within: float = 0.5, stopping: asyncio.Event | None = None) -> None:
    await wait_for_server(http, "http://it", stopping or asyncio.Event(), within)


async def test_a_server_that_just_restarts_is_waited_for(tmp_path: Path) -> None:
    answers = iter([web.Response(status=503), web.Response(status=500, text="etcd"), web.json_response({})])
    async with server(lambda: next(answers), tmp_path) as http:
        await wait(http, within=5)
    assert next(answers, None) is None


async def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    async with server(lambda: web.json_response({"code": 403, "reason": "Forbidden"}, status=403), tmp_path) as http:
        await wait(http)


async def test_credentials_that_are_not_accepted(tmp_path: Path) -> None:
    async with server(lambda: web.json_response({"code": 401}, status=401), tmp_path) as http:
        with pytest.raises(NotReachable, match="does not accept our credentials"):
            await wait(http, within=60)


async def test_somebody_who_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with at("http://{}:{}".format(*mute.getsockname()), tmp_path) as http:
            began = time.monotonic()
            with pytest.raises(NotReachable, match="no answer from the API server at http://it"):
                await wait(http)
            assert time.monotonic() - began < 2


async def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    stopping = asyncio.Event()

    def answer() -> web.Response:
        stopping.set()
        return web.Response(status=503)

    async with server(answer, tmp_path) as http, asyncio.timeout(5):
        await wait(http, within=60, stopping=stopping)


async def test_which_kinds_are_missing(cluster: ClusterAccess) -> None:
    unknown_group = Kind("nobody.example", "v1", "Nothing", "nothings", Object)
    unknown_plural = Kind("apps", "v1", "Deployment", "deploymints", Object)
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        assert await missing(http, [CONFIG_MAP, DEPLOYMENT, unknown_plural, unknown_group]) == [
            unknown_plural,
            unknown_group,
        ]
