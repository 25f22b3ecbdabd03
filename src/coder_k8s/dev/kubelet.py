"""Simulates the containers of pods, in a cluster whose pods run nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Unstructured

Stop = Callable[[], None]
Start = Callable[[Unstructured], Awaitable[Stop]]


class Kubelet:
    """Calls `start` for each pod that becomes ready, and its result when the pod is deleted."""

    def __init__(self, client: Client, namespaces: Sequence[str], start: Start) -> None:
        self._pods = Informer(client, POD, namespaces, metrics=Metrics())
        self._start = start
        self._started: set[str] = set()
        self._deleted: set[str] = set()
        self._stops: dict[str, Stop] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        self._pods.listen(self._on_change)
        watching = asyncio.create_task(self._pods.run())
        try:
            await self._pods.synced.wait()
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching, *self._tasks])

    def _on_change(self, change: Change[Unstructured]) -> None:
        pod = change.new or change.old
        assert pod is not None
        uid = pod.metadata.uid
        if change.new is None or pod.deleting:
            self._deleted.add(uid)
            self._stops.pop(uid, lambda: None)()
        elif uid not in self._started and _is_ready(pod):
            self._started.add(uid)
            task = asyncio.create_task(self._start_pod(pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _start_pod(self, pod: Unstructured) -> None:
        stop = await self._start(pod)
        if pod.metadata.uid in self._deleted:
            stop()
        else:
            self._stops[pod.metadata.uid] = stop


def secret_of(pod: Unstructured, variable: str) -> tuple[Key, str] | None:
    """Return the Secret and key that the first container references in an environment variable."""
    for entry in pod.manifest["spec"]["containers"][0].get("env", []):
        if entry["name"] == variable and (source := entry.get("valueFrom", {}).get("secretKeyRef")):
            return Key(pod.metadata.namespace, source["name"]), source["key"]
    return None


def _is_ready(pod: Unstructured) -> bool:
    conditions = (pod.manifest.get("status") or {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
