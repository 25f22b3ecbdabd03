"""After any fault between the informer and a real API server, the cache equals a fresh list."""

import asyncio
import base64
import time
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET_METADATA
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured, newer
from tests.support import eventually
from tests.support.informers import (
    MakeInformer,
    caught_up,
    config_map,
    informers,
    record_changes,
    running,
    synced,
    version,
)
from tests.support.proxy import Proxy


@pytest.fixture
async def proxy(cluster: ClusterAccess) -> AsyncIterator[Proxy]:
    async with Proxy(load(cluster.kubeconfig)) as proxy:
        yield proxy


@pytest.fixture
async def client(cluster: ClusterAccess) -> AsyncIterator[Client]:
    """Another client, connected directly to the API server."""
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        yield Client(http, "another")


@pytest.fixture
async def informer_of(proxy: Proxy) -> AsyncIterator[MakeInformer]:
    async with informers(proxy.config) as make:
        yield make


async def test_lists_once_and_then_handles_every_event(
    client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str
) -> None:
    first = await client.create(CONFIG_MAP, config_map(namespace, "first"))
    informer = informer_of(CONFIG_MAP, namespace)
    changes = record_changes(informer)
    async with synced(informer):
        await caught_up(informer, client, namespace)
        second = await client.create(CONFIG_MAP, config_map(namespace, "second"))
        changed = await client.merge(CONFIG_MAP, first.key, {"data": {"colour": "red"}})
        await client.delete(CONFIG_MAP, second)
        await eventually(lambda: len(changes) == 4)
        await caught_up(informer, client, namespace)
    assert [(change.key.name, change.from_list, version(change.old), version(change.new)) for change in changes] == [
        ("first", True, "", version(first)),
        ("second", False, "", version(second)),
        ("first", False, version(first), version(changed)),
        ("second", False, version(second), ""),
    ]
    assert len(proxy.lists) == 1


async def test_a_write_is_notified_once_with_its_writer(
    client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str
) -> None:
    informer = informer_of(CONFIG_MAP, namespace)
    changes = record_changes(informer)
    async with synced(informer):
        proxy.blocked = True
        proxy.reset()  # so that the watch event arrives after the response
        own = await client.create(CONFIG_MAP, config_map(namespace, "own"))
        informer.record_write(own, "planes")
        assert informer.get(own.key) == own
        proxy.blocked = False
        other = await client.create(CONFIG_MAP, config_map(namespace, "other"))
        await eventually(lambda: informer.get(other.key))
    assert changes == [Change(own.key, None, own, "planes"), Change(other.key, None, other)]


async def test_a_bookmark_updates_the_last_sync_version(
    client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str
) -> None:
    informer = informer_of(CONFIG_MAP, namespace, watch_timeout=3, jitter=lambda: 0.0)
    changes = record_changes(informer)
    async with synced(informer):
        start = int(informer.last_sync_version(namespace))
        elsewhere = await client.create(CONFIG_MAP, config_map("default", f"elsewhere-{uuid.uuid4().hex[:8]}"))
        await eventually(lambda: int(informer.last_sync_version(namespace)) > start, 30)
        assert changes == []
        await eventually(lambda: f"resourceVersion={informer.last_sync_version(namespace)}" in proxy.watches[-1], 30)
        await client.delete(CONFIG_MAP, elsewhere)
    assert len(proxy.lists) == 1


async def test_a_broken_watch_resumes(client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str) -> None:
    informer = informer_of(CONFIG_MAP, namespace)
    deleted = await client.create(CONFIG_MAP, config_map(namespace, "deleted"))
    async with synced(informer):
        for number in range(5):
            await client.create(CONFIG_MAP, config_map(namespace, f"before-{number}"))
            proxy.reset()
            await client.create(CONFIG_MAP, config_map(namespace, f"after-{number}"))
        proxy.blocked = True
        proxy.reset()
        await client.delete(CONFIG_MAP, deleted)
        proxy.blocked = False
        await caught_up(informer, client, namespace)
        assert len(informer) == 10
    assert len(proxy.lists) == 1


async def test_an_idle_watch_times_out(client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str) -> None:
    watch_idle_timeout = 0.6
    informer = informer_of(CONFIG_MAP, namespace, watch_idle_timeout=watch_idle_timeout)
    async with synced(informer):
        await eventually(lambda: proxy.watches)
        proxy.freeze()
        frozen = time.monotonic()
        await client.create(CONFIG_MAP, config_map(namespace, "missed"))
        await eventually(lambda: informer.get(Key(namespace, "missed")), timeout=5)
        assert time.monotonic() - frozen < watch_idle_timeout + 2
        await caught_up(informer, client, namespace)
    assert len(proxy.lists) == 1


async def test_several_namespaces(
    client: Client, cluster: ClusterAccess, proxy: Proxy, informer_of: MakeInformer, namespace: str
) -> None:
    second, third = f"{namespace}-2", f"{namespace}-3"
    for name in second, third:
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    informer = informer_of(CONFIG_MAP, namespace, second)
    gone = await client.create(CONFIG_MAP, config_map(second, "gone"))
    async with synced(informer):
        for name in namespace, second, third:
            await client.create(CONFIG_MAP, config_map(name, "one"))
        await caught_up(informer, client, namespace, second)
        proxy.reset()
        await client.delete(CONFIG_MAP, gone)
        await caught_up(informer, client, namespace, second)
        assert {item.key.namespace for item in informer} == {namespace, second}


async def test_an_object_that_no_longer_matches_the_selector_is_removed(
    client: Client, informer_of: MakeInformer, namespace: str
) -> None:
    manifest = config_map(namespace, "one")
    manifest["metadata"]["labels"] = {"app": "x"}
    one = await client.create(CONFIG_MAP, manifest)
    await client.create(CONFIG_MAP, config_map(namespace, "other"))
    informer = informer_of(CONFIG_MAP, namespace, labels="app=x")
    async with synced(informer):
        assert [item.key for item in informer] == [one.key]
        await client.merge(CONFIG_MAP, one.key, {"metadata": {"labels": {"app": "y"}}})
        await eventually(lambda: informer.get(one.key) is None)


async def test_an_own_write_that_does_not_match_the_selector_is_not_cached(
    client: Client, informer_of: MakeInformer, namespace: str
) -> None:
    informer = informer_of(CONFIG_MAP, namespace, labels="app=x")
    one = await client.create(CONFIG_MAP, config_map(namespace, "one"))
    async with synced(informer):
        changes = record_changes(informer)
        written = await informer.write(one.key, "me", client.merge(CONFIG_MAP, one.key, {"data": {"a": "b"}}))
        assert informer.get(one.key) is None
        assert [(change.old, change.new, change.writer) for change in changes] == [(written, None, "")]
        await informer.write(one.key, "me", client.merge(CONFIG_MAP, one.key, {"metadata": {"labels": {"app": "x"}}}))
        assert informer.get(one.key) is not None


async def test_secrets_are_watched_without_their_data(
    client: Client, proxy: Proxy, informer_of: MakeInformer, namespace: str
) -> None:
    secret = {"metadata": {"name": "one", "namespace": namespace}, "stringData": {"password": "secret-password"}}
    informer = informer_of(SECRET_METADATA, namespace)
    async with synced(informer):
        made = await client.create(SECRET_METADATA, secret)
        await eventually(lambda: informer.get(made.key))
        await client.merge(SECRET_METADATA, made.key, {"stringData": {"password": "secret-password-2"}})
        await eventually(lambda: informer.get(made.key) not in (None, made))
        await caught_up(informer, client, namespace)
    assert b"PartialObjectMetadata" in proxy.answers
    assert base64.b64encode(b"secret-password")[:12] not in proxy.answers


class Strict(Object):
    """A ConfigMap that decodes only with valid data."""

    data: dict[str, bool] = msgspec.field(default_factory=dict)


STRICT: Kind[Strict] = Kind("", "v1", "ConfigMap", "configmaps", Strict)


async def test_an_undecodable_object_does_not_affect_others(
    client: Client, informer_of: MakeInformer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "undecodable", valid="no"))
    changed = await client.create(CONFIG_MAP, config_map(namespace, "changed"))
    informer = informer_of(STRICT, namespace)
    async with synced(informer):
        assert [item.key for item in informer] == [changed.key]
        invalid = await client.merge(CONFIG_MAP, changed.key, {"data": {"valid": "no"}})
        await eventually(lambda: not newer(invalid.metadata.resource_version, informer.last_sync_version(namespace)))
        assert informer.get(changed.key), "the cache keeps its last valid state"
        valid = await client.merge(CONFIG_MAP, changed.key, {"data": {"valid": None}})
        await eventually(
            lambda: [item.metadata.resource_version for item in informer] == [valid.metadata.resource_version]
        )
        await client.delete(CONFIG_MAP, changed, unchanged=False)
        await client.create(CONFIG_MAP, config_map(namespace, "last"))
        await eventually(lambda: [item.key.name for item in informer] == ["last"])
    assert f"cannot decode ConfigMap {namespace}/undecodable" in caplog.text


def custom_kind(group: str) -> Kind[Unstructured]:
    return Kind(group, "v1", "Thing", "things", Unstructured)


def crd(group: str) -> Manifest:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize("optional", [True, False])
async def test_a_kind_that_is_installed_and_removed_later(
    client: Client, cluster: ClusterAccess, informer_of: MakeInformer, namespace: str, optional: bool
) -> None:
    kind = custom_kind(f"{namespace}.example")
    informer = informer_of(kind, namespace, optional=optional)
    changes = record_changes(informer)
    async with running(informer), asyncio.timeout(30):
        if optional:
            await informer.synced.wait()
        else:
            await eventually(lambda: "install its CustomResourceDefinition" in informer.error)
            assert not informer.synced.is_set()
        assert len(informer) == 0

        assert cluster.request("POST", CRDS, crd(kind.group))[0] == 201
        await eventually(lambda: informer.synced.is_set() and informer.last_sync_version(namespace), timeout=20)
        created = await client.create(kind, {"metadata": {"name": "one", "namespace": namespace}})
        await eventually(lambda: informer.get(created.key))
        await caught_up(informer, client, namespace)
        assert informer.error == ""

        assert cluster.request("DELETE", f"{CRDS}/things.{kind.group}")[0] == 200
        await eventually(lambda: len(informer) == 0 and not informer.last_sync_version(namespace), timeout=20)
        assert [change.new is None for change in changes] == [False, True]
