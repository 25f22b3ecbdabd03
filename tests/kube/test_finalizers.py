from collections.abc import AsyncIterator

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import config, errors, finalizers
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Unstructured
from tests.support.metrics import total

OWN = "coder.com/own"
OTHER = "example.com/other"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client(cluster: ClusterAccess, metrics: Metrics) -> AsyncIterator[Client]:
    async with Http(config.load(cluster.kubeconfig), "test", metrics) as http:
        yield Client(http, "test")


@pytest.fixture
async def seen(client: Client, namespace: str) -> Unstructured:
    return await client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": "demo"}})


def requests(metrics: Metrics) -> int:
    return total(metrics.requests)


async def test_add_and_remove_keep_other_finalizers(client: Client, seen: Unstructured) -> None:
    first = await finalizers.add(client, CONFIG_MAP, seen, OTHER)
    both = await finalizers.add(client, CONFIG_MAP, first, OWN)
    assert both.metadata.finalizers == [OTHER, OWN]
    assert both.metadata.resource_version != seen.metadata.resource_version

    removed = await finalizers.remove(client, CONFIG_MAP, both, OWN)
    assert removed is not None
    assert removed.metadata.finalizers == [OTHER]
    assert (await client.get(CONFIG_MAP, seen.key)).metadata.finalizers == [OTHER]


async def test_no_request_without_a_change(client: Client, seen: Unstructured, metrics: Metrics) -> None:
    added = await finalizers.add(client, CONFIG_MAP, seen, OWN)
    before = requests(metrics)
    assert await finalizers.add(client, CONFIG_MAP, added, OWN) is added
    assert await finalizers.remove(client, CONFIG_MAP, seen, OWN) is seen
    assert requests(metrics) == before


async def test_a_concurrent_change_is_a_conflict(client: Client, seen: Unstructured) -> None:
    await finalizers.add(client, CONFIG_MAP, seen, OTHER)
    with pytest.raises(errors.Conflict):
        await finalizers.add(client, CONFIG_MAP, seen, OWN)

    fresh = await client.get(CONFIG_MAP, seen.key)
    added = await finalizers.add(client, CONFIG_MAP, fresh, OWN)
    await client.merge(CONFIG_MAP, seen.key, {"data": {"changed": "by another"}})
    with pytest.raises(errors.Conflict):
        await finalizers.remove(client, CONFIG_MAP, added, OWN)
    assert (await client.get(CONFIG_MAP, seen.key)).metadata.finalizers == [OTHER, OWN]


async def test_removing_the_last_finalizer_deletes_the_object(client: Client, seen: Unstructured) -> None:
    added = await finalizers.add(client, CONFIG_MAP, seen, OWN)
    await client.delete(CONFIG_MAP, added)
    deleting = await client.get(CONFIG_MAP, seen.key)
    assert deleting.deleting

    await finalizers.remove(client, CONFIG_MAP, deleting, OWN)
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAP, seen.key)
    assert await finalizers.remove(client, CONFIG_MAP, deleting, OWN) is None


async def test_adding_to_a_deleted_object_fails(client: Client, seen: Unstructured) -> None:
    await client.delete(CONFIG_MAP, seen)
    with pytest.raises(errors.NotFound):
        await finalizers.add(client, CONFIG_MAP, seen, OWN)
