"""Control planes for tests, and an observer of their children."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.controlplane.wiring import CHILDREN
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Change, Listener
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support.objects import REPLICA_COUNTS


def manifest(namespace: str = "golden", name: str = "demo", **spec: Any) -> Manifest:
    """The manifest of a control plane, without operator access because no Coder runs, nor a Job that checks images."""
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"operatorAccess": {"disabled": True}, "update": {"strategy": "Rolling"}, **spec},
    }


def plane(namespace: str = "golden", name: str = "demo", **spec: Any) -> CoderControlPlane:
    """The same as the operator reads it."""
    written = manifest(namespace, name, **spec)
    written["metadata"]["uid"] = "1234"
    return msgspec.convert(written, CoderControlPlane)


class Observer:
    """Watches all children with administrator permissions."""

    def __init__(self, client: Client, caches: Mapping[Kind[Unstructured], Informer[Unstructured]]) -> None:
        self.client = client
        self._caches = caches

    def get(self, kind: Kind[Unstructured], namespace: str, name: str) -> Unstructured:
        """A child that exists; `eventually` waits for one that does not exist yet."""
        found = self._caches[kind].get(Key(namespace, name))
        assert found is not None, f"there is no {kind.name} {namespace}/{name}"
        return found

    def has(self, kind: Kind[Unstructured], namespace: str, name: str) -> bool:
        return self._caches[kind].get(Key(namespace, name)) is not None

    def children(self) -> dict[tuple[str, Key], Unstructured]:
        """All objects of the kinds that the operator creates."""
        return {(kind.name, child.key): child for kind, cache in self._caches.items() for child in cache}

    def listen(self, kind: Kind[Unstructured], listener: Listener[Unstructured]) -> None:
        self._caches[kind].listen(listener)

    async def change(self, namespace: str, name: str, **spec: Any) -> CoderControlPlane:
        """Change the spec of a control plane; `None` removes a field."""
        return await self.client.merge(CONTROL_PLANE, Key(namespace, name), {"spec": spec})


@asynccontextmanager
async def observing(kubeconfig: Path, namespaces: Sequence[str] = ("",)) -> AsyncIterator[Observer]:
    metrics = Metrics()
    async with Http(load(kubeconfig), "administrator", metrics) as http:
        client = Client(http, "administrator")
        caches = {
            kind: Informer(client, kind, namespaces, metrics=metrics, optional=kind is HTTP_ROUTE) for kind in CHILDREN
        }
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(cache.run()) for cache in caches.values()]
            for cache in caches.values():
                await asyncio.wait_for(cache.synced.wait(), 20)
            try:
                yield Observer(client, caches)
            finally:
                for watch in watches:
                    watch.cancel()


@asynccontextmanager
async def rolling_out(observer: Observer) -> AsyncIterator[None]:
    """Set the status of every Deployment to rolled out as soon as it changes: no pods run here."""
    changed = asyncio.Queue[Unstructured]()

    def listen(change: Change[Unstructured]) -> None:
        if change.new is not None:
            changed.put_nowait(change.new)

    async def roll_out() -> None:
        while True:
            deployment = await changed.get()
            wanted = deployment.manifest["spec"]["replicas"]
            status = {"observedGeneration": deployment.metadata.generation, **dict.fromkeys(REPLICA_COUNTS, wanted)}
            if deployment.manifest.get("status") != status:
                with suppress(errors.NotFound, errors.Conflict):  # it was deleted, and perhaps created again
                    await observer.client.merge(DEPLOYMENT, deployment.key, {"status": status}, "status")

    observer.listen(DEPLOYMENT, listen)
    task = asyncio.create_task(roll_out())
    try:
        yield
    finally:
        task.cancel()
