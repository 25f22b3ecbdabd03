"""The Node object, its Lease, and one worker per pod."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import aiohttp
import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.lease import LEASE, claim
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured, timestamp

from .delays import Delays
from .environment import ALLOCATABLE
from .forwarder import Forwarders
from .host import Host
from .images import Images
from .local import Range, loopback
from .worker import Worker, folder_name

log = logging.getLogger(__name__)

NODE = Kind("", "v1", "Node", "nodes", Unstructured, namespaced=False)
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
FLUSH_SECONDS = 2.0
FINISHED = ("Succeeded", "Failed")


def node_status(name: str, address: str, now: datetime) -> Manifest:
    """Return the status of a node that is ready."""
    capacity = {**ALLOCATABLE, "pods": "200"}
    return {
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "allocatable": capacity,
        "capacity": capacity,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "containers run as processes of this machine",
                "lastHeartbeatTime": timestamp(now),
                "lastTransitionTime": timestamp(now),
            }
        ],
    }


class Node:
    """Runs the pods that the scheduler binds to it, within `run`."""

    def __init__(
        self,
        client: Client,
        name: str,
        folder: Path,
        images: Images,
        delays: Delays = Delays(),  # noqa: B008 - it is frozen
        taints: Sequence[Manifest] = (),
    ) -> None:
        self.name = name
        self.forwarders = Forwarders(client)
        self._client = client
        self._folder = folder
        self._images = images
        self._delays = delays
        self._taints = taints
        self._metrics = Metrics()
        self._recorder = Recorder(client, "coder-k8s-node", name, self._metrics)
        self._pods = Informer(client, POD, metrics=self._metrics)
        self._workers: dict[str, tuple[Worker, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Register the node and run its pods; at the end, kill their processes."""
        addresses = Range(secrets.randbelow)
        background: list[asyncio.Task[None]] = []
        try:
            async with self.forwarders.run(), _session() as http:
                host = self._host(http, loopback(addresses.node))
                await self._register(loopback(addresses.node))
                self._pods.listen(lambda change: self._on_change(host, addresses, change))
                background = [asyncio.create_task(run()) for run in (self._pods.run, self._renew, self._recorder.run)]
                await self._pods.synced.wait()
                try:
                    yield
                finally:
                    await cancel([*background, *(task for _, task in self._workers.values())])
                    await self._recorder.flush(FLUSH_SECONDS)
        finally:
            addresses.close()

    def log(self, pod: Unstructured, container: str) -> Path:
        """Return the log of a container."""
        return self._folder / folder_name(pod) / f"{container}.log"

    def _host(self, http: aiohttp.ClientSession, address: str) -> Host:
        return Host(
            self._client,
            http,
            self._recorder,
            self.forwarders,
            self._images,
            self._folder,
            address,
            self._delays,
            lambda: datetime.now(UTC),
        )

    async def _register(self, address: str) -> None:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        manifest: Manifest = {"metadata": {"name": self.name, "labels": labels}}
        if self._taints:
            manifest["spec"] = {"taints": list(self._taints)}
        with suppress(errors.AlreadyExists):  # the node of an earlier run
            await self._client.create(NODE, manifest)
        await self._renew_lease()
        status = node_status(self.name, address, datetime.now(UTC))
        await self._client.merge(NODE, Key("", self.name), {"status": status}, "status")

    async def _renew(self) -> NoReturn:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew_lease()
            except errors.KubeError as error:
                log.warning("cannot renew the Lease of node %s: %s", self.name, error)

    async def _renew_lease(self) -> None:
        key = Key(LEASE_NAMESPACE, self.name)
        try:
            before = (await self._client.get(LEASE, key)).spec
        except errors.NotFound:
            before = None
        spec = msgspec.to_builtins(claim(before, self.name, LEASE_SECONDS, datetime.now(UTC)))
        if before is None:
            await self._client.create(LEASE, {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec})
        else:
            await self._client.merge(LEASE, key, {"spec": spec})

    def _on_change(self, host: Host, addresses: Range, change: Change[Unstructured]) -> None:
        pod = change.new or change.old
        assert pod is not None
        uid, manifest = pod.metadata.uid, pod.manifest
        if manifest["spec"].get("nodeName") != self.name:
            return
        if uid not in self._workers:
            finished = manifest.get("status", {}).get("phase") in FINISHED and not pod.deleting
            if change.new is not None and not finished:
                self._start(host, addresses, pod)
            return
        worker, task = self._workers[uid]
        if change.new is None:
            task.cancel()  # deleted without a grace period, or by the worker
        else:
            worker.update(pod)

    def _start(self, host: Host, addresses: Range, pod: Unstructured) -> None:
        worker = Worker(host, pod, addresses.take())
        task = asyncio.create_task(worker.run(), name=f"pod {pod.key}")
        self._workers[pod.metadata.uid] = worker, task

        def finish(_: object) -> None:
            del self._workers[pod.metadata.uid]
            addresses.free(worker.address)
            if not task.cancelled() and (error := task.exception()):
                log.error("the worker of pod %s failed", pod.key, exc_info=error)

        task.add_done_callback(finish)


def _session() -> aiohttp.ClientSession:
    """Return a session for probes, each of which opens a connection."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them. A second cancellation would interrupt the cleanup of a task."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    if tasks:
        await asyncio.wait(tasks)
