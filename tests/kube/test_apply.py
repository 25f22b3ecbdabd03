"""Owned objects come to what we want, by as few writes as possible, on a real API server."""

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


class World:
    """A namespace with an owner, and an applier whose requests are counted where they arrive."""

    def __init__(self, http: Http, proxy: Proxy, namespace: str) -> None:
        self.namespace = namespace
        self.client = Client(http, "coder-k8s")
        self.other = Client(http, "somebody")
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

    async def apply(self, kind: Kind[Unstructured], want: Manifest) -> Unstructured:
        return await self.applier.apply(kind, self.cache, want, self.owner)

    async def watch_says(self, kind: Kind[Unstructured], name: str = "child") -> Unstructured:
        """What an informer would put into the cache by now."""
        live = await self.client.get(kind, Key(self.namespace, name))
        self.cache.update("", live)
        return live

    def requests(self) -> Counter[str]:
        """How many of each method the API server was sent up to now."""
        return Counter(request.split()[0] for request in self.proxy.requests)


@pytest.fixture
async def world(cluster: ClusterAccess, namespace: str) -> AsyncIterator[World]:
    async with Proxy(load(cluster.kubeconfig)) as proxy, Http(proxy.config, "test", Metrics()) as http:
        world = World(http, proxy, namespace)
        await world.start()
        yield world


def deployment(world: World, *, image: str = "coder:1", **container: Any) -> Manifest:
    coder = {"name": "coder", "image": image, **container}
    return world.owned(
        spec={
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [coder]}},
        }
    )


def containers(child: Unstructured) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = child.manifest["spec"]["template"]["spec"]["containers"]
    return found


async def test_what_is_not_there_is_created_and_known_at_once(world: World) -> None:
    made = await world.apply(CONFIG_MAP, world.owned(data={"a": "1"}))
    assert made.manifest["data"] == {"a": "1"}
    assert world.cache.get(made.key) is made


async def test_no_request_when_nothing_changed_not_even_after_a_restart(world: World) -> None:
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi"}}
    want = deployment(world, resources=resources, env=[{"name": "EMPTY", "value": ""}])
    await world.apply(DEPLOYMENT, want)
    await world.watch_says(DEPLOYMENT)
    before = world.requests()
    await world.apply(DEPLOYMENT, want)
    await Applier(world.client, "demo", DIGEST).apply(DEPLOYMENT, world.cache, want, world.owner)
    assert world.requests() == before


async def test_a_field_that_somebody_changed_is_repaired(world: World) -> None:
    want = world.owned(data={"a": "1"})
    made = await world.apply(CONFIG_MAP, want)
    await world.other.merge(CONFIG_MAP, made.key, {"data": {"a": "2"}})
    await world.watch_says(CONFIG_MAP)
    assert (await world.apply(CONFIG_MAP, want)).manifest["data"] == {"a": "1"}


async def test_a_field_that_we_no_longer_want_goes_away(world: World) -> None:
    await world.apply(CONFIG_MAP, world.owned(data={"a": "1", "b": "2"}))
    assert (await world.apply(CONFIG_MAP, world.owned(data={"a": "1"}))).manifest["data"] == {"a": "1"}
    await world.apply(CONFIG_MAP, world.owned(data={"a": "1", "c": "3"}))
    assert (await world.apply(CONFIG_MAP, world.owned())).manifest.get("data", {}) == {}


async def test_a_default_returns_when_we_stop_saying_otherwise(world: World) -> None:
    await world.apply(DEPLOYMENT, deployment(world, terminationMessagePolicy="FallbackToLogsOnError"))
    live = await world.apply(DEPLOYMENT, deployment(world))
    assert containers(live)[0]["terminationMessagePolicy"] == "File"


async def test_what_another_manager_added_is_left_alone(world: World) -> None:
    made = await world.apply(DEPLOYMENT, deployment(world))
    sidecar = {"name": "sidecar", "image": "proxy:1"}
    foreign = world.named("child") | {
        "spec": {"selector": {"matchLabels": LABELS}, "template": {"spec": {"containers": [sidecar]}}}
    }
    foreign["metadata"] |= {"annotations": {"example.com/injected": "yes"}}
    await world.other.apply(DEPLOYMENT, foreign)
    await world.watch_says(DEPLOYMENT)

    before = world.requests()
    await world.apply(DEPLOYMENT, deployment(world))
    assert world.requests() == before

    live = await world.apply(DEPLOYMENT, deployment(world, image="coder:2"))
    assert {container["image"] for container in containers(live)} == {"coder:2", "proxy:1"}
    assert live.metadata.annotations["example.com/injected"] == "yes"
    assert live.metadata.uid == made.metadata.uid


@pytest.mark.parametrize("known", [True, False], ids=["in the cache", "not yet in the cache"])
async def test_an_object_of_another_owner_is_refused(world: World, known: bool) -> None:
    theirs = await world.other.create(CONFIG_MAP, world.named("child") | {"data": {"a": "theirs"}})
    if known:
        await world.watch_says(CONFIG_MAP)
    with pytest.raises(OwnedByOther, match=f"ConfigMap {world.namespace}/child exists and has no owner"):
        await world.apply(CONFIG_MAP, world.owned(data={"a": "ours"}))
    live = await world.client.get(CONFIG_MAP, theirs.key)
    assert live.metadata.resource_version == theirs.metadata.resource_version


async def test_an_object_of_ours_that_the_cache_missed_is_adopted(world: World) -> None:
    made = await world.other.create(CONFIG_MAP, world.owned(data={"a": "1"}))
    live = await world.apply(CONFIG_MAP, world.owned(data={"a": "2"}))
    assert (live.metadata.uid, live.manifest["data"]) == (made.metadata.uid, {"a": "2"})


@pytest.mark.parametrize("changes", [0, 1], ids=["as created", "applied to since"])
async def test_a_namesake_made_since_we_looked_is_not_touched(world: World, changes: int) -> None:
    made = await world.apply(CONFIG_MAP, world.owned(data={"a": "1"}))
    for change in range(changes):
        made = await world.apply(CONFIG_MAP, world.owned(data={"a": f"changed {change}"}))
    await world.other.delete(CONFIG_MAP, made)
    theirs = await world.other.create(CONFIG_MAP, world.named("child") | {"data": {"a": "theirs"}})
    with pytest.raises(errors.Conflict):
        await world.apply(CONFIG_MAP, world.owned(data={"a": "2"}))
    live = await world.client.get(CONFIG_MAP, theirs.key)
    assert live.metadata.resource_version == theirs.metadata.resource_version


async def test_takes_over_what_was_written_by_update(world: World) -> None:
    """As an operator leaves it that creates and updates under our name without server-side apply."""
    ports = [{"name": "http", "port": 80}, {"name": "extra", "port": 81}]
    spec = {"selector": LABELS, "ports": ports, "sessionAffinity": "ClientIP"}
    made = await world.client.create(SERVICE, world.owned(spec=spec))
    await world.client.merge(SERVICE, made.key, {"metadata": {"annotations": {"old": "note"}}})
    before = (await world.watch_says(SERVICE)).manifest["spec"]

    live = await world.apply(SERVICE, world.owned(spec={"selector": LABELS, "ports": ports[:1]}))

    after = live.manifest["spec"]
    assert [port["name"] for port in after["ports"]] == ["http"]
    assert after["sessionAffinity"] == "None"
    assert "old" not in live.metadata.annotations
    assert after["clusterIP"] == before["clusterIP"]
    assert live.metadata.uid == made.metadata.uid
    assert {(entry.manager, entry.operation) for entry in live.metadata.managed_fields} == {("coder-k8s", "Apply")}


async def test_taking_over_costs_one_request_and_only_the_first_time(world: World) -> None:
    await world.apply(CONFIG_MAP, world.owned(data={"a": "1"}))
    for data, patches in (("2", 2), ("3", 1)):
        before = world.requests()
        await world.apply(CONFIG_MAP, world.owned(data={"a": data}))
        assert world.requests() - before == {"PATCH": patches}


async def test_takes_over_what_changed_since_we_looked(world: World) -> None:
    """So that our entry is in another place than it was, or there is one more of ours."""
    made = await world.apply(CONFIG_MAP, world.owned(data={"a": "1", "b": "1"}))
    await world.other.merge(CONFIG_MAP, made.key, {"data": {"c": "theirs"}})
    await world.client.apply(CONFIG_MAP, world.owned(data={"d": "ours"}))
    live = await world.apply(CONFIG_MAP, world.owned(data={"a": "2"}))
    assert live.manifest["data"] == {"a": "2", "c": "theirs"}
    assert {(entry.manager, entry.operation) for entry in live.metadata.managed_fields} == {
        ("coder-k8s", "Apply"),
        ("somebody", "Update"),
    }


async def test_does_not_ask_again_for_what_the_server_will_not_give(world: World) -> None:
    """A value that comes back in another form than it was sent, as from a webhook that has its own idea."""
    want = world.owned(spec={"selector": LABELS, "ports": [{"port": 80}], "internalTrafficPolicy": "Cluster"})
    want["spec"]["externalIPs"] = ["192.0.2.1"]
    want["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"  # the server writes its own
    await world.apply(SERVICE, want)
    before = world.requests()
    await world.apply(SERVICE, want)
    assert world.requests() == before
    await world.other.merge(SERVICE, Key(world.namespace, "child"), {"spec": {"externalIPs": None}})
    await world.watch_says(SERVICE)
    assert (await world.apply(SERVICE, want)).manifest["spec"]["externalIPs"] == ["192.0.2.1"]
    before = world.requests()
    world.applier.forget(world.owner.key)
    await world.apply(SERVICE, want)
    assert world.requests() != before


async def test_an_object_that_is_going_is_left_to_go(world: World) -> None:
    want = world.owned(data={"a": "1"})
    want["metadata"]["finalizers"] = ["example.com/hold"]
    made = await world.apply(CONFIG_MAP, want)
    await world.other.delete(CONFIG_MAP, made)
    await world.watch_says(CONFIG_MAP)
    before = world.requests()
    assert (await world.apply(CONFIG_MAP, world.owned(data={"a": "2"}))).deleting
    assert world.requests() == before
