"""A job queue for provisioner daemons, and a daemon for each pod."""

import asyncio
import base64
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.kubelet import Kubelet, Stop
from coder_k8s.dev.processes import Process
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Unstructured
from tests.support.rotations import secret_of

PROGRAM = Path(__file__).parent / "daemon_process.py"
EVERY = 0.2
SHORT = 0.02
BUILD_EVERY = 20
"""One of this number of jobs is a build of one to three seconds. At most one build runs at a time."""
POLL = 0.5


@dataclass
class Job:
    """A job for one daemon."""

    seconds: float
    created: float
    taken: float | None = None
    daemon: str = ""
    done: float | None = None

    @property
    def waited(self) -> float:
        return (time.monotonic() if self.taken is None else self.taken) - self.created


@dataclass
class Link:
    """A connected daemon. It keeps working after coderd deleted its row together with its key."""

    state: State
    key: str
    tags: dict[str, str]
    organization: str


class Board:
    """Assigns each job to the first free daemon that is connected with a key of these servers.

    Daemons also run the jobs in the queue of their server, by its rules. With `ghosts`, the server shows a daemon that
    has left for 90 seconds, as coderd does.
    """

    def __init__(self, coderds: Mapping[str, CoderdServer], seed: str, *, ghosts: bool = False) -> None:
        self.jobs: list[Job] = []
        self.links: dict[str, Link] = {}
        self.orphans: set[str] = set()
        """Daemons that were connected when their key was deleted."""
        self.port = 0
        self._ghosts = ghosts
        self._states = [coderd.state for coderd in coderds.values()]
        self._random = Random(seed)  # noqa: S311 - the same builds in every run
        self._waiting: asyncio.Queue[int] = asyncio.Queue()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Board"]:
        """Serve daemons."""
        app = web.Application()
        for name in ("connect", "acquire", "complete", "leave"):
            app.router.add_post(f"/{name}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def post(self, stopping: asyncio.Event) -> None:
        """Add jobs at a fixed interval until `stopping` is set, then wait until all are done."""
        while not stopping.is_set():
            build = len(self.jobs) % BUILD_EVERY == BUILD_EVERY - 1
            seconds = self._random.uniform(1, 3) if build else SHORT
            self._waiting.put_nowait(len(self.jobs))
            self.jobs.append(Job(seconds, time.monotonic()))
            await asyncio.sleep(EVERY)

    @property
    def undone(self) -> list[Job]:
        return [job for job in self.jobs if job.done is None]

    @property
    def longest_wait(self) -> float:
        return max((job.waited for job in self.jobs), default=0)

    async def _answer(self, request: web.Request) -> web.Response:
        act = getattr(self, "_" + request.path.removeprefix("/"))
        answer = await act(**(await request.json()))
        return web.json_response(answer)

    async def _connect(self, name: str, key: str) -> dict[str, Any]:
        for state in self._states:
            if daemon := state.log_in(name, key):
                row = state.daemons[daemon]
                self.links[daemon] = Link(state, row.key, row.tags, state.organization_of(row))
                return {"daemon": daemon}
        return {}

    async def _acquire(self, daemon: str) -> dict[str, Any]:
        link = self.links[daemon]
        if (queued := link.state.queue.take_job(daemon, link.tags, link.organization)) is not None:
            return {"number": queued.id, "seconds": queued.seconds}
        try:
            async with asyncio.timeout(POLL):
                number = await self._waiting.get()
        except TimeoutError:
            self._show(daemon, "idle")
            return {}
        job = self.jobs[number]
        job.taken, job.daemon = time.monotonic(), daemon
        self._show(daemon, "busy")
        return {"number": number, "seconds": job.seconds}

    async def _complete(self, daemon: str, job: int | str) -> dict[str, Any]:
        if isinstance(job, str):
            self.links[daemon].state.queue.finish_job(job)
            return {}
        assert self.jobs[job].daemon == daemon
        self.jobs[job].done = time.monotonic()
        self._show(daemon, "idle")
        return {}

    async def _leave(self, daemon: str) -> dict[str, Any]:
        self._show(daemon, "idle")
        state = self.links.pop(daemon).state
        if self._ghosts and daemon in state.daemons:
            state.close_daemon(daemon)
        else:
            state.daemons.pop(daemon, None)
        return {}

    def _show(self, daemon: str, status: str) -> None:
        """Set the status of a daemon in coderd, unless its row was deleted with its key."""
        state = self.links[daemon].state
        if daemon in state.daemons:
            state.set_daemon(daemon, status)
        else:
            self.orphans.add(daemon)


@asynccontextmanager
async def daemons_of_pods(client: Client, boards: Mapping[str, Board], folder: Path) -> AsyncIterator[None]:
    """Run a daemon for each ready pod of a provisioner; it receives SIGTERM when the pod is deleted."""
    daemons: list[Process] = []

    async def start(pod: Unstructured) -> Stop:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        if pod.metadata.labels.get("app.kubernetes.io/name") != "coder-provisioner":
            return lambda: None
        secret = await client.get(SECRET, Key(namespace, secret_of(pod.manifest)))
        key = base64.b64decode((secret.manifest.get("data") or {}).get("key", "")).decode()
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(boards[namespace].port), name]
        daemon = Process(command, folder / f"{name}.log", env={"CODER_PROVISIONER_DAEMON_KEY": key})
        daemon.start()
        daemons.append(daemon)
        return daemon.child.terminate

    try:
        async with Kubelet(client, list(boards), start).run():
            yield
    finally:
        for daemon in daemons:
            daemon.kill()
