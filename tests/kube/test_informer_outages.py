"""After a crash or a compaction of the API server, the cache equals a fresh list."""

import asyncio
import base64
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.client import PAGE, Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.support import eventually
from tests.support.informers import (
    MakeInformer,
    caught_up,
    config_map,
    informers,
    record_changes,
    running,
    synced,
)
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster that the test kills and compacts."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def place(own_cluster: Cluster) -> str:
    """A namespace of that cluster."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    assert own_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return name


@asynccontextmanager
async def connected(own_cluster: Cluster) -> AsyncIterator[tuple[Client, Proxy, MakeInformer]]:
    config = load(own_cluster.kubeconfig)
    async with Http(config, "test", Metrics()) as http, Proxy(config) as proxy, informers(proxy.config) as make:
        yield Client(http, "another"), proxy, make


async def restart(own_cluster: Cluster) -> None:
    own_cluster.kill_apiserver()
    own_cluster.apiserver.start()
    await asyncio.to_thread(own_cluster.apiserver.wait_ready)


async def test_an_api_server_that_restarts(own_cluster: Cluster, place: str) -> None:
    async with connected(own_cluster) as (client, _, make):
        one = await client.create(CONFIG_MAP, config_map(place, "one"))
        informer = make(CONFIG_MAP, place)
        changes = record_changes(informer)
        async with running(informer), asyncio.timeout(60):
            await informer.synced.wait()
            await restart(own_cluster)
            await client.merge(CONFIG_MAP, one.key, {"data": {"colour": "red"}})
            await client.create(CONFIG_MAP, config_map(place, "two"))
            await eventually(lambda: len(informer) == 2)
            await caught_up(informer, client, place)
        assert [change.key.name for change in changes] == ["one", "one", "two"]


async def test_deletions_before_a_compaction_are_found(own_cluster: Cluster, place: str) -> None:
    async with connected(own_cluster) as (client, proxy, make):
        for name in "kept", "changed", "deleted":
            await client.create(CONFIG_MAP, config_map(place, name))
        informer = make(CONFIG_MAP, place)
        changes = record_changes(informer)
        async with running(informer), asyncio.timeout(60):
            await informer.synced.wait()
            proxy.blocked = True
            proxy.reset()
            await client.delete(CONFIG_MAP, await client.get(CONFIG_MAP, Key(place, "deleted")))
            await client.merge(CONFIG_MAP, Key(place, "changed"), {"data": {"colour": "red"}})
            await client.create(CONFIG_MAP, config_map(place, "new"))
            own_cluster.compact()
            await restart(own_cluster)
            del changes[:]
            proxy.blocked = False
            await caught_up(informer, client, place)
            assert len(proxy.lists) == 2
        kinds = {change.key.name: (change.old is not None, change.new is not None) for change in changes}
        assert kinds == {"deleted": (True, False), "changed": (True, True), "new": (False, True)}
        assert len(changes) == 3


async def test_a_list_of_five_thousand_objects_is_consistent(own_cluster: Cluster, place: str) -> None:
    names = [f"many-{number:04}" for number in range(5000)]
    put_into_etcd(own_cluster, [config_map(place, name) for name in names])
    async with connected(own_cluster) as (client, proxy, make):
        pages = []
        async for page in client.list(CONFIG_MAP, place):
            pages.append(page)
            await client.create(CONFIG_MAP, config_map(place, f"later-{len(pages)}"))
        assert [len(page.items) for page in pages] == [PAGE] * 10
        assert len({page.resource_version for page in pages}) == 1
        assert [Unstructured.decode(item).key.name for page in pages for item in page.items] == names

        informer = make(CONFIG_MAP, place)
        async with synced(informer):
            assert len(proxy.lists) == 11
            assert len(informer) == 5010
            await caught_up(informer, client, place)


def put_into_etcd(own_cluster: Cluster, manifests: list[Manifest]) -> None:
    """Create ConfigMaps in etcd, a hundred per transaction."""

    def put(manifest: Manifest) -> Manifest:
        metadata = {**manifest["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
        stored = {**manifest, "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        key = "/registry/configmaps/{namespace}/{name}".format(**metadata)
        return {"requestPut": {"key": encoded(key.encode()), "value": encoded(msgspec.json.encode(stored))}}

    for start in range(0, len(manifests), 100):
        own_cluster._etcd_request(
            "/v3/kv/txn", {"success": [put(manifest) for manifest in manifests[start : start + 100]]}
        )


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
