"""Apply owned objects on a real API server, with as few writes as possible."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.apply import Applier, OwnedByOther
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support.proxy import Proxy

DIGEST = "example.com/applied-digest"
LABELS = {"app": "demo"}


class ApplierFixture:
    """A namespace with an owner, an applier, and a proxy that counts its requests."""

    def __init__(self, http: Http, proxy: Proxy, namespace: str) -> None:
        self.namespace = namespace
        self.client = Client(http, "coder-k8s")
        self.other = Client(http, "kubectl")
        self.applier = Applier(self.client, "demo", DIGEST)
        self.cache = Cache[Unstructured]()
        self.proxy = proxy

    async def start(self) -> None:
        self.owner = await self.other.create(CONFIG_MAP, self.named("owner"))
        self.cache.replace("", [], self.owner.metadata.resource_version)

    def named(self, name: str) -> Manifest:
        return {"metadata": {"name": name, "namespace": self.namespace}}

    def owned(self, name: str = "child", **content: Any) -> Manifest:
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": self.owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        manifest = self.named(name)
        manifest["metadata"] |= {"labels": LABELS, "ownerReferences": [reference]}
        return manifest | content

    async def apply(self, kind: Kind[Unstructured], desired: Manifest) -> Unstructured:
        return await self.applier.apply(kind, self.cache, desired, self.owner)

    async def update_cache(self, kind: Kind[Unstructured], name: str = "child") -> Unstructured:
        """Put the live object into the cache, as an informer does."""
        live = await self.client.get(kind, Key(self.namespace, name))
        self.cache.update("", live)
        return live

    def requests(self) -> Counter[str]:
        """Return the number of requests by method."""
        return Counter(request.split()[0] for request in self.proxy.requests)


@pytest.fixture
async def scope(cluster: ClusterAccess, namespace: str) -> AsyncIterator[ApplierFixture]:
    async with Proxy(load(cluster.kubeconfig)) as proxy, Http(proxy.config, "test", Metrics()) as http:
        scope = ApplierFixture(http, proxy, namespace)
        await scope.start()
        yield scope


def deployment(scope: ApplierFixture, *, image: str = "coder:1", **container: Any) -> Manifest:
    coder = {"name": "coder", "image": image, **container}
    return scope.owned(
        spec={
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [coder]}},
        }
    )


def containers(child: Unstructured) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = child.manifest["spec"]["template"]["spec"]["containers"]
    return found


async def test_a_missing_object_is_created_and_cached_at_once(scope: ApplierFixture) -> None:
    made = await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1"}))
    assert made.manifest["data"] == {"a": "1"}
    assert scope.cache.get(made.key) is made


async def test_no_request_without_a_change_also_after_a_restart(scope: ApplierFixture) -> None:
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi"}}
    desired = deployment(scope, resources=resources, env=[{"name": "EMPTY", "value": ""}])
    await scope.apply(DEPLOYMENT, desired)
    await scope.update_cache(DEPLOYMENT)
    before = scope.requests()
    await scope.apply(DEPLOYMENT, desired)
    await Applier(scope.client, "demo", DIGEST).apply(DEPLOYMENT, scope.cache, desired, scope.owner)
    assert scope.requests() == before


async def test_a_changed_field_is_repaired(scope: ApplierFixture) -> None:
    desired = scope.owned(data={"a": "1"})
    made = await scope.apply(CONFIG_MAP, desired)
    await scope.other.merge(CONFIG_MAP, made.key, {"data": {"a": "2"}})
    await scope.update_cache(CONFIG_MAP)
    assert (await scope.apply(CONFIG_MAP, desired)).manifest["data"] == {"a": "1"}


async def test_a_field_that_is_no_longer_desired_is_removed(scope: ApplierFixture) -> None:
    await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1", "b": "2"}))
    assert (await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1"}))).manifest["data"] == {"a": "1"}
    await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1", "c": "3"}))
    assert (await scope.apply(CONFIG_MAP, scope.owned())).manifest.get("data", {}) == {}


async def test_a_default_returns_when_the_field_is_no_longer_set(scope: ApplierFixture) -> None:
    await scope.apply(DEPLOYMENT, deployment(scope, terminationMessagePolicy="FallbackToLogsOnError"))
    live = await scope.apply(DEPLOYMENT, deployment(scope))
    assert containers(live)[0]["terminationMessagePolicy"] == "File"


async def test_fields_of_other_managers_are_kept(scope: ApplierFixture) -> None:
    made = await scope.apply(DEPLOYMENT, deployment(scope))
    sidecar = {"name": "sidecar", "image": "proxy:1"}
    foreign = scope.named("child") | {
        "spec": {"selector": {"matchLabels": LABELS}, "template": {"spec": {"containers": [sidecar]}}}
    }
    foreign["metadata"] |= {"annotations": {"example.com/injected": "yes"}}
    await scope.other.apply(DEPLOYMENT, foreign)
    await scope.update_cache(DEPLOYMENT)

    before = scope.requests()
    await scope.apply(DEPLOYMENT, deployment(scope))
    assert scope.requests() == before

    live = await scope.apply(DEPLOYMENT, deployment(scope, image="coder:2"))
    assert {container["image"] for container in containers(live)} == {"coder:2", "proxy:1"}
    assert live.metadata.annotations["example.com/injected"] == "yes"
    assert live.metadata.uid == made.metadata.uid


@pytest.mark.parametrize("known", [True, False], ids=["in the cache", "not yet in the cache"])
async def test_an_object_of_another_owner_is_rejected(scope: ApplierFixture, known: bool) -> None:
    other = await scope.other.create(CONFIG_MAP, scope.named("child") | {"data": {"a": "other"}})
    if known:
        await scope.update_cache(CONFIG_MAP)
    with pytest.raises(OwnedByOther, match="ConfigMap child exists and has no owner"):
        await scope.apply(CONFIG_MAP, scope.owned(data={"a": "own"}))
    live = await scope.client.get(CONFIG_MAP, other.key)
    assert live.metadata.resource_version == other.metadata.resource_version


async def test_an_owned_object_that_is_not_cached_is_applied(scope: ApplierFixture) -> None:
    made = await scope.other.create(CONFIG_MAP, scope.owned(data={"a": "1"}))
    live = await scope.apply(CONFIG_MAP, scope.owned(data={"a": "2"}))
    assert (live.metadata.uid, live.manifest["data"]) == (made.metadata.uid, {"a": "2"})


@pytest.mark.parametrize("changes", [0, 1], ids=["as created", "applied to since"])
async def test_a_replaced_object_is_not_changed(scope: ApplierFixture, changes: int) -> None:
    made = await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1"}))
    for change in range(changes):
        made = await scope.apply(CONFIG_MAP, scope.owned(data={"a": f"changed {change}"}))
    await scope.other.delete(CONFIG_MAP, made)
    other = await scope.other.create(CONFIG_MAP, scope.named("child") | {"data": {"a": "other"}})
    with pytest.raises(errors.Conflict):
        await scope.apply(CONFIG_MAP, scope.owned(data={"a": "2"}))
    live = await scope.client.get(CONFIG_MAP, other.key)
    assert live.metadata.resource_version == other.metadata.resource_version


async def test_upgrades_fields_that_were_written_by_update(scope: ApplierFixture) -> None:
    """An earlier operator with the same field manager did not use server-side apply."""
    ports = [{"name": "http", "port": 80}, {"name": "extra", "port": 81}]
    spec = {"selector": LABELS, "ports": ports, "sessionAffinity": "ClientIP"}
    made = await scope.client.create(SERVICE, scope.owned(spec=spec))
    await scope.client.merge(SERVICE, made.key, {"metadata": {"annotations": {"old": "note"}}})
    before = (await scope.update_cache(SERVICE)).manifest["spec"]

    live = await scope.apply(SERVICE, scope.owned(spec={"selector": LABELS, "ports": ports[:1]}))

    after = live.manifest["spec"]
    assert [port["name"] for port in after["ports"]] == ["http"]
    assert after["sessionAffinity"] == "None"
    assert "old" not in live.metadata.annotations
    assert after["clusterIP"] == before["clusterIP"]
    assert live.metadata.uid == made.metadata.uid
    assert {(entry.manager, entry.operation) for entry in live.metadata.managed_fields} == {("coder-k8s", "Apply")}


async def test_the_upgrade_needs_one_request_once(scope: ApplierFixture) -> None:
    await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1"}))
    for data, patches in (("2", 2), ("3", 1)):
        before = scope.requests()
        await scope.apply(CONFIG_MAP, scope.owned(data={"a": data}))
        assert scope.requests() - before == {"PATCH": patches}


async def test_upgrades_an_object_that_has_changed(scope: ApplierFixture) -> None:
    """The entry of the manager has another index, or there is another one."""
    made = await scope.apply(CONFIG_MAP, scope.owned(data={"a": "1", "b": "1"}))
    await scope.other.merge(CONFIG_MAP, made.key, {"data": {"c": "other"}})
    await scope.client.apply(CONFIG_MAP, scope.owned(data={"d": "own"}))
    live = await scope.apply(CONFIG_MAP, scope.owned(data={"a": "2"}))
    assert live.manifest["data"] == {"a": "2", "c": "other"}
    assert {(entry.manager, entry.operation) for entry in live.metadata.managed_fields} == {
        ("coder-k8s", "Apply"),
        ("kubectl", "Update"),
    }


async def test_a_value_that_the_server_changes_is_not_applied_again(
    scope: ApplierFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """For example a webhook that changes the value."""
    desired = scope.owned(spec={"selector": LABELS, "ports": [{"port": 80}], "internalTrafficPolicy": "Cluster"})
    desired["spec"]["externalIPs"] = ["192.0.2.1"]
    desired["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"  # the server sets its own
    await scope.apply(SERVICE, desired)
    before = scope.requests()
    await scope.apply(SERVICE, desired)
    assert scope.requests() == before
    await scope.other.merge(SERVICE, Key(scope.namespace, "child"), {"spec": {"externalIPs": None}})
    await scope.update_cache(SERVICE)
    assert (await scope.apply(SERVICE, desired)).manifest["spec"]["externalIPs"] == ["192.0.2.1"]
    before = scope.requests()
    scope.applier.applied.forget(scope.owner.key)
    caplog.clear()
    caplog.set_level(logging.INFO, "coder_k8s.kube.apply")
    await scope.apply(SERVICE, desired)
    assert scope.requests() != before
    assert "Changed" not in caplog.text, "the apply changed nothing"


async def test_an_object_that_is_being_deleted_is_not_changed(scope: ApplierFixture) -> None:
    desired = scope.owned(data={"a": "1"})
    desired["metadata"]["finalizers"] = ["example.com/hold"]
    made = await scope.apply(CONFIG_MAP, desired)
    await scope.other.delete(CONFIG_MAP, made)
    await scope.update_cache(CONFIG_MAP)
    before = scope.requests()
    assert (await scope.apply(CONFIG_MAP, scope.owned(data={"a": "2"}))).deleting
    assert scope.requests() == before
