"""Every verb of the client, against a real API server."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, SECRET_METADATA
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support.proxy import Proxy

NOT_SERVED: Kind[Unstructured] = Kind("unknown.example", "v1", "Thing", "things", Unstructured)


@pytest.fixture
async def client(cluster: ClusterAccess) -> AsyncIterator[Client]:
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        yield Client(http, "tester")


def config_map(namespace: str, name: str = "one", labels: dict[str, str] | None = None, **data: str) -> Manifest:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "data": data}


def deployment(namespace: str, **spec: Any) -> Manifest:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


async def list_names(client: Client, kind: Kind[Any], namespace: str, **selectors: str) -> list[str]:
    pages = [page async for page in client.list(kind, namespace, **selectors)]
    return [kind.type.decode(item).key.name for page in pages for item in page.items]


async def managers(client: Client, namespace: str) -> set[tuple[str, str]]:
    manifest = await client.get_manifest(CONFIG_MAP, Key(namespace, "one"))
    return {(entry["manager"], entry["operation"]) for entry in manifest["metadata"]["managedFields"]}


async def test_create_get_and_delete(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    assert created.key == Key(namespace, "one")
    assert created.manifest["data"] == {"colour": "red"}
    assert "managedFields" not in created.manifest["metadata"]
    assert await client.get(CONFIG_MAP, created.key) == created
    assert await managers(client, namespace) == {("tester", "Update")}

    await client.delete(CONFIG_MAP, created)
    with pytest.raises(errors.NotFound, match='configmaps "one" not found'):
        await client.get(CONFIG_MAP, created.key)
    with pytest.raises(errors.NotFound):
        await client.delete(CONFIG_MAP, created)


async def test_replace_of_a_changed_object_is_a_conflict(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    blue = {**created.manifest, "data": {"colour": "blue"}}
    replaced = await client.replace(CONFIG_MAP, blue)
    assert replaced.manifest["data"] == {"colour": "blue"}
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.replace(CONFIG_MAP, blue)


async def test_apply_takes_over_its_fields_and_keeps_others(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, a="red", b="red"))
    applier = Client(client._http, "another")
    applied = await applier.apply(CONFIG_MAP, config_map(namespace, a="blue"))
    assert applied.metadata.uid == created.metadata.uid
    assert applied.manifest["data"] == {"a": "blue", "b": "red"}
    assert await managers(client, namespace) == {("tester", "Update"), ("another", "Apply")}

    other = config_map(namespace, a="green")
    other["metadata"]["uid"] = str(uuid.uuid4())
    with pytest.raises(errors.Conflict):
        await applier.apply(CONFIG_MAP, other)


async def test_preconditions_of_a_merge_patch(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, keep="1", drop="1"))
    patched = await client.merge(CONFIG_MAP, created.key, {"data": {"drop": None, "new": "1"}})
    assert patched.manifest["data"] == {"keep": "1", "new": "1"}

    stale = {"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"keep": "2"}}
    with pytest.raises(errors.Conflict):
        await client.merge(CONFIG_MAP, created.key, stale)
    with pytest.raises(errors.Conflict):
        await client.merge(CONFIG_MAP, created.key, {"metadata": {"uid": str(uuid.uuid4())}, "data": {"keep": "2"}})
    assert await client.get(CONFIG_MAP, created.key) == patched


async def test_a_json_patch_is_atomic(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    change = {"op": "replace", "path": "/data/colour", "value": "blue"}
    patched = await client.patch(CONFIG_MAP, created.key, [change])
    assert patched.manifest["data"] == {"colour": "blue"}
    with pytest.raises(errors.Invalid):
        await client.patch(CONFIG_MAP, created.key, [{"op": "test", "path": "/data/colour", "value": "red"}, change])


async def test_a_status_patch_changes_only_the_status(client: Client, namespace: str) -> None:
    created = await client.create(DEPLOYMENT, deployment(namespace, replicas=2))
    change = {"spec": {"replicas": 5}, "status": {"replicas": 2, "observedGeneration": 1}}
    patched = await client.merge(DEPLOYMENT, created.key, change, "status")
    assert patched.manifest["status"] == {"replicas": 2, "observedGeneration": 1}
    assert patched.manifest["spec"] == created.manifest["spec"]

    await client.delete(DEPLOYMENT, patched)
    await client.create(DEPLOYMENT, deployment(namespace))
    stale = {"metadata": {"uid": created.metadata.uid}, "status": {"replicas": 7}}
    with pytest.raises(errors.Conflict):
        await client.merge(DEPLOYMENT, created.key, stale, "status")


async def test_preconditions_of_delete(client: Client, namespace: str) -> None:
    seen = await client.create(CONFIG_MAP, config_map(namespace))
    changed = await client.merge(CONFIG_MAP, seen.key, {"data": {"colour": "red"}})
    with pytest.raises(errors.Conflict, match="ResourceVersion in the precondition"):
        await client.delete(CONFIG_MAP, seen)
    assert await client.get(CONFIG_MAP, seen.key) == changed

    await client.delete(CONFIG_MAP, seen, unchanged=False)
    successor = await client.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(errors.Conflict, match="UID in the precondition"):
        await client.delete(CONFIG_MAP, seen, unchanged=False)
    assert await client.get(CONFIG_MAP, seen.key) == successor


async def test_errors_have_the_message_of_the_api_server(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(errors.AlreadyExists, match='configmaps "one" already exists'):
        await client.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(errors.Invalid, match="must be greater than or equal to 0") as raised:
        await client.create(DEPLOYMENT, deployment(namespace, replicas=-1))
    assert (raised.value.status, raised.value.reason) == (422, "Invalid")
    with pytest.raises(errors.Invalid, match="cannot be handled as a Deployment") as raised:
        await client.create(DEPLOYMENT, {**deployment(namespace), "kind": "ConfigMap", "apiVersion": "v1"})
    assert raised.value.status == 400
    with pytest.raises(errors.NotFound):
        await client.get(NOT_SERVED, Key(namespace, "one"))
    with pytest.raises(errors.NotFound):
        await list_names(client, NOT_SERVED, namespace)


async def test_a_token_without_permissions_is_forbidden(cluster: ClusterAccess, namespace: str, tmp_path: Path) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.request("POST", account, {"metadata": {"name": "unprivileged"}})
    status, body = cluster.request("POST", f"{account}/unprivileged/token", {"spec": {}})
    assert status == 201
    user = {"token": msgspec.json.decode(body)["status"]["token"]}
    async with Http(load(cluster.write_kubeconfig(tmp_path / "kubeconfig", user)), "test", Metrics()) as http:
        client = Client(http, "tester")
        with pytest.raises(errors.Forbidden, match=f'cannot get resource "secrets" .* in the namespace "{namespace}"'):
            await client.get(SECRET, Key(namespace, "one"))
        with pytest.raises(errors.Forbidden):
            await client.create(CONFIG_MAP, config_map(namespace))
        with pytest.raises(errors.Forbidden):
            _ = [event async for event in client.watch(SECRET, namespace, "", seconds=1, idle_timeout=5)]


async def test_metadata_requests_transfer_no_secret_data(cluster: ClusterAccess, namespace: str) -> None:
    manifest = {"metadata": {"name": "one", "namespace": namespace}, "stringData": {"password": "never-shown"}}
    async with Proxy(load(cluster.kubeconfig)) as proxy, Http(proxy.config, "test", Metrics()) as http:
        client = Client(http, "tester")
        created = await client.create(SECRET, manifest)
        assert b"bmV2ZXItc2hvd24=" in proxy.answers
        proxy.answers.clear()

        seen = await client.get(SECRET_METADATA, created.key)
        assert (seen.key, seen.metadata.resource_version) == (created.key, created.metadata.resource_version)
        assert await list_names(client, SECRET_METADATA, namespace) == ["one"]
        version = str(int(created.metadata.resource_version) - 1)
        watch = client.watch(SECRET_METADATA, namespace, version, seconds=1, idle_timeout=5)
        events = [event async for event in watch if event.type != "BOOKMARK"]
        assert [(event.type, SECRET_METADATA.type.decode(event.object)) for event in events] == [("ADDED", seen)]
        assert await client.merge(SECRET_METADATA, created.key, {"metadata": {"labels": {"a": "b"}}})
        assert b"PartialObjectMetadata" in proxy.answers
        assert b"bmV2ZXItc2hvd24=" not in proxy.answers


async def test_list_with_selectors(client: Client, namespace: str) -> None:
    for name, app in ("one", "x"), ("two", "x"), ("three", "y"):
        await client.create(CONFIG_MAP, config_map(namespace, name, {"app": app}))
    assert sorted(await list_names(client, CONFIG_MAP, namespace)) == ["one", "three", "two"]
    assert sorted(await list_names(client, CONFIG_MAP, namespace, labels="app=x")) == ["one", "two"]
    assert await list_names(client, CONFIG_MAP, namespace, fields="metadata.name=three") == ["three"]
