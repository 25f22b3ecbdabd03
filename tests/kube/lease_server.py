"""An in-memory API server for one Lease, with errors and delays on demand."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.kube import kubeconfigs

PATH = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class LeaseServer:
    """Serves at most one Lease; every write must have the current resourceVersion."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes: list[dict[str, Any]] = []
        self.reject: Callable[[web.Request], int] = lambda _: 0
        """Returns the error status for a request, or 0 to handle it."""
        self.hang: Callable[[web.Request], bool] = lambda _: False
        self.before_response: Callable[[web.Request], None] = lambda _: None
        self.watchers = 0
        self._version = 100
        self._changed = asyncio.Condition()
        self._closing = asyncio.Event()

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def restore(self) -> None:
        """Continue with lower resourceVersions, as after a restore of etcd."""
        self._version = 10

    async def edit(self, lease: dict[str, Any] | None) -> None:
        """Change the Lease as another client would."""
        self._version += 1
        if lease is not None:
            lease.setdefault("metadata", {"name": "lease", "namespace": "ns"})
            lease["metadata"] |= {"resourceVersion": str(self._version), "uid": "uid"}
        self.lease = lease
        async with self._changed:
            self._changed.notify_all()

    @asynccontextmanager
    async def http(self, folder: Path) -> AsyncIterator[Http]:
        """Serve, and yield a client."""
        application = web.Application(middlewares=[self._inject_faults])
        application.add_routes(
            [
                web.get(PATH, self._watch),
                web.post(PATH, self._write),
                web.get(PATH + "/{name}", self._get),
                web.put(PATH + "/{name}", self._write),
            ]
        )
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        kubeconfig = kubeconfigs.write(folder / "kubeconfig", {"server": f"http://{host}:{port}"})
        try:
            async with Http(load(kubeconfig), "test", Metrics()) as http:
                yield http
        finally:
            self._closing.set()
            await runner.cleanup()

    @web.middleware
    async def _inject_faults(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.hang(request):
            await self._closing.wait()
        if status := self.reject(request):
            return _status(status, "Rejected")
        response: web.StreamResponse = await handler(request)
        self.before_response(request)
        return response

    async def _get(self, _: web.Request) -> web.Response:
        return web.json_response(self.lease) if self.lease else _status(404, "NotFound")

    async def _write(self, request: web.Request) -> web.Response:
        new = await request.json()
        if request.method == "POST" and self.lease is not None:
            return _status(409, "AlreadyExists")
        if request.method == "PUT" and self.lease is None:
            return _status(404, "NotFound")
        if self.lease and new["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        self.writes.append(new)
        await self.edit(new)
        return web.json_response(self.lease)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        self.watchers += 1
        with suppress(ConnectionResetError):  # the client is gone
            while not self._closing.is_set():
                line = {"type": "MODIFIED" if self.lease else "BOOKMARK", "object": self.lease or {"metadata": {}}}
                await stream.write(json.dumps(line).encode() + b"\n")
                async with self._changed:
                    await self._changed.wait()
        return stream


def _status(code: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": reason}, status=code)
