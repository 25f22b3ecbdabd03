"""Every verb, on real objects of a real API server."""

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

ABSENT: Kind[Unstructured] = Kind("nowhere.example", "v1", "Thing", "things", Unstructured)


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


async def listed(client: Client, kind: Kind[Any], namespace: str, **selectors: str) -> list[str]:
    pages = [page async for page in client.list(kind, namespace, **selectors)]
    return [kind.type.decode(item).key.name for page in pages for item in page.items]


async def managers(client: Client, namespace: str) -> set[tuple[str, str]]:
    manifest = await client.get_manifest(CONFIG_MAP, Key(namespace, "one"))
    return {(entry["manager"], entry["operation"]) for entry in manifest["metadata"]["managedFields"]}


async def test_what_is_created_can_be_read_and_deleted(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    assert made.key == Key(namespace, "one")
    assert made.manifest["data"] == {"colour": "red"}
    assert "managedFields" not in made.manifest["metadata"]
    assert await client.get(CONFIG_MAP, made.key) == made
    assert await managers(client, namespace) == {("tester", "Update")}

    await client.delete(CONFIG_MAP, made)
    with pytest.raises(errors.NotFound, match='configmaps "one" not found'):
        await client.get(CONFIG_MAP, made.key)
    with pytest.raises(errors.NotFound):
        await client.delete(CONFIG_MAP, made)


async def test_replace_refuses_what_changed_since(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    blue = {**made.manifest, "data": {"colour": "blue"}}
    replaced = await client.replace(CONFIG_MAP, blue)
    assert replaced.manifest["data"] == {"colour": "blue"}
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.replace(CONFIG_MAP, blue)


async def test_apply_takes_fields_from_others_and_leaves_the_rest(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map(namespace, mine="red", theirs="red"))
    ours = Client(client._http, "another")
    applied = await ours.apply(CONFIG_MAP, config_map(namespace, mine="blue"))
    assert applied.metadata.uid == made.metadata.uid
    assert applied.manifest["data"] == {"mine": "blue", "theirs": "red"}
    assert await managers(client, namespace) == {("tester", "Update"), ("another", "Apply")}

    other = config_map(namespace, mine="green")
    other["metadata"]["uid"] = str(uuid.uuid4())
    with pytest.raises(errors.Conflict):
        await ours.apply(CONFIG_MAP, other)


async def test_a_merge_patch_is_for_the_object_that_was_meant(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map(namespace, keep="1", drop="1"))
    patched = await client.merge(CONFIG_MAP, made.key, {"data": {"drop": None, "new": "1"}})
    assert patched.manifest["data"] == {"keep": "1", "new": "1"}

    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"keep": "2"}}
    with pytest.raises(errors.Conflict):
        await client.merge(CONFIG_MAP, made.key, stale)
    with pytest.raises(errors.Conflict):
        await client.merge(CONFIG_MAP, made.key, {"metadata": {"uid": str(uuid.uuid4())}, "data": {"keep": "2"}})
    assert await client.get(CONFIG_MAP, made.key) == patched


async def test_a_json_patch_is_all_or_nothing(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map(namespace, colour="red"))
    change = {"op": "replace", "path": "/data/colour", "value": "blue"}
    patched = await client.patch(CONFIG_MAP, made.key, [change])
    assert patched.manifest["data"] == {"colour": "blue"}
    with pytest.raises(errors.Invalid):
        await client.patch(CONFIG_MAP, made.key, [{"op": "test", "path": "/data/colour", "value": "red"}, change])


async def test_a_status_patch_changes_nothing_but_the_status(client: Client, namespace: str) -> None:
    made = await client.create(DEPLOYMENT, deployment(namespace, replicas=2))
    change = {"spec": {"replicas": 5}, "status": {"replicas": 2, "observedGeneration": 1}}
    patched = await client.merge(DEPLOYMENT, made.key, change, "status")
    assert patched.manifest["status"] == {"replicas": 2, "observedGeneration": 1}
    assert patched.manifest["spec"] == made.manifest["spec"]

    await client.delete(DEPLOYMENT, patched)
    await client.create(DEPLOYMENT, deployment(namespace))
    stale = {"metadata": {"uid": made.metadata.uid}, "status": {"replicas": 7}}
    with pytest.raises(errors.Conflict):
        await client.merge(DEPLOYMENT, made.key, stale, "status")


async def test_delete_takes_exactly_what_was_seen(client: Client, namespace: str) -> None:
    seen = await client.create(CONFIG_MAP, config_map(namespace))
    changed = await client.merge(CONFIG_MAP, seen.key, {"data": {"colour": "red"}})
    with pytest.raises(errors.Conflict, match="ResourceVersion in the precondition"):
        await client.delete(CONFIG_MAP, seen)
    assert await client.get(CONFIG_MAP, seen.key) == changed

    await client.delete(CONFIG_MAP, seen, unchanged=False)
    namesake = await client.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(errors.Conflict, match="UID in the precondition"):
        await client.delete(CONFIG_MAP, seen, unchanged=False)
    assert await client.get(CONFIG_MAP, seen.key) == namesake


async def test_refusals_carry_the_words_of_the_api_server(client: Client, namespace: str) -> None:
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
        await client.get(ABSENT, Key(namespace, "one"))
    with pytest.raises(errors.NotFound):
        await listed(client, ABSENT, namespace)


async def test_a_token_without_rights_is_forbidden(cluster: ClusterAccess, namespace: str, tmp_path: Path) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.request("POST", account, {"metadata": {"name": "nobody"}})
    status, answer = cluster.request("POST", f"{account}/nobody/token", {"spec": {}})
    assert status == 201
    user = {"token": msgspec.json.decode(answer)["status"]["token"]}
    async with Http(load(cluster.write_kubeconfig(tmp_path / "kubeconfig", user)), "test", Metrics()) as http:
        client = Client(http, "tester")
        with pytest.raises(errors.Forbidden, match=f'cannot get resource "secrets" .* in the namespace "{namespace}"'):
            await client.get(SECRET, Key(namespace, "one"))
        with pytest.raises(errors.Forbidden):
            await client.create(CONFIG_MAP, config_map(namespace))
        with pytest.raises(errors.Forbidden):
            _ = [event async for event in client.watch(SECRET, namespace, "", seconds=1, idle_timeout=5)]


async def test_a_glimpse_brings_no_secret_over_the_wire(cluster: ClusterAccess, namespace: str) -> None:
    manifest = {"metadata": {"name": "one", "namespace": namespace}, "stringData": {"password": "tell-nobody"}}
    async with Proxy(load(cluster.kubeconfig)) as proxy, Http(proxy.config, "test", Metrics()) as http:
        client = Client(http, "tester")
        made = await client.create(SECRET, manifest)
        assert b"dGVsbC1ub2JvZHk=" in proxy.answers
        proxy.answers.clear()

        seen = await client.get(SECRET_METADATA, made.key)
        assert (seen.key, seen.metadata.resource_version) == (made.key, made.metadata.resource_version)
        assert await listed(client, SECRET_METADATA, namespace) == ["one"]
        version = str(int(made.metadata.resource_version) - 1)
        watch = client.watch(SECRET_METADATA, namespace, version, seconds=1, idle_timeout=5)
        events = [event async for event in watch if event.type != "BOOKMARK"]
        assert [(event.type, SECRET_METADATA.type.decode(event.object)) for event in events] == [("ADDED", seen)]
        assert await client.merge(SECRET_METADATA, made.key, {"metadata": {"labels": {"a": "b"}}})
        assert b"PartialObjectMetadata" in proxy.answers
        assert b"dGVsbC1ub2JvZHk=" not in proxy.answers


async def test_a_list_can_be_narrowed(client: Client, namespace: str) -> None:
    for name, app in ("one", "x"), ("two", "x"), ("three", "y"):
        await client.create(CONFIG_MAP, config_map(namespace, name, {"app": app}))
    assert sorted(await listed(client, CONFIG_MAP, namespace)) == ["one", "three", "two"]
    assert sorted(await listed(client, CONFIG_MAP, namespace, labels="app=x")) == ["one", "two"]
    assert await listed(client, CONFIG_MAP, namespace, fields="metadata.name=three") == ["three"]
