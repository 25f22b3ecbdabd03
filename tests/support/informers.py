"""Informers under test, and comparisons of their caches with the API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import Config
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer, WatchOptions
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from tests.support import eventually

MakeInformer = Callable[..., Informer[Any]]


@asynccontextmanager
async def informers(config: Config) -> AsyncIterator[MakeInformer]:
    """Yield a function that creates informers with short intervals."""
    metrics = Metrics()
    async with Http(config, "test", metrics) as http:

        def make(
            kind: Kind[Any], *namespaces: str, optional: bool = False, labels: str = "", **options: Any
        ) -> Informer[Any]:
            fast: dict[str, Any] = {"backoff": Backoff(0.02, 0.1), "missing_kind_interval": 0.1}
            watch = WatchOptions(**(fast | options))
            client = Client(http, "test")
            return Informer(client, kind, namespaces, metrics=metrics, optional=optional, labels=labels, options=watch)

        yield make


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[None]:
    """Run an informer during the block; fails if it ends by itself."""
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):  # and no other exception
            await task


@asynccontextmanager
async def synced(informer: Informer[Any]) -> AsyncIterator[None]:
    async with running(informer), asyncio.timeout(30):
        await informer.synced.wait()
        yield


def config_map(namespace: str, name: str, **data: str) -> Manifest:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def fresh_list(client: Client, kind: Kind[Any], *namespaces: str) -> dict[Key, Object]:
    pages = [page for namespace in namespaces async for page in client.list(kind, namespace)]
    items = [kind.type.decode(raw) for page in pages for raw in page.items]
    return {item.key: item for item in items}


async def caught_up(informer: Informer[Any], client: Client, *namespaces: str) -> None:
    """Wait until the cache equals a fresh list."""

    async def equal() -> bool:
        fresh = await fresh_list(client, informer.kind, *namespaces)
        assert {item.key: content(item) for item in informer} == {key: content(item) for key, item in fresh.items()}
        return True

    await eventually(equal)


def content(item: Object) -> object:
    """The content of an object, without the fields that list items do not have."""
    if not isinstance(item, Unstructured):
        return item
    return {name: value for name, value in item.manifest.items() if name not in ("apiVersion", "kind")}


def record_changes(informer: Informer[Any]) -> list[Change[Any]]:
    changes: list[Change[Any]] = []
    informer.listen(changes.append)
    return changes


def version(item: Object | None) -> str:
    return item.metadata.resource_version if item else ""
