"""Release and repair of children, their pods, and dry runs."""

from collections.abc import AsyncIterator
from contextlib import nullcontext

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.labels import COMPONENT, DIGEST, INSTANCE, labels
from coder_k8s.controllers.repairs import restored
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.support.api import Api, reply


@pytest.fixture
async def client(cluster: ClusterAccess, crds: None) -> AsyncIterator[Client]:
    async with Http(load(cluster.kubeconfig), "tests", Metrics()) as http:
        yield Client(http, "tests")


def children_of(client: Client, pods: Cache[Unstructured] | None = None) -> Children:
    recorder = Recorder(client, "tests", "tests", Metrics())
    caches = {} if pods is None else {POD: pods}
    return Children(client, Applier(client, "tests", "digest"), caches, CONTROL_PLANE, recorder)


def child(digest: str, **spec: object) -> Unstructured:
    manifest = {"metadata": {"name": "demo", "labels": {DIGEST: digest, "tier": "web"}}, "spec": spec}
    return Unstructured.decode(msgspec.json.encode(manifest))


@pytest.mark.parametrize(
    ("before", "live", "expected"),
    [
        pytest.param(
            child("new", replicas=7, image="a"), child("new", replicas=1, image="a"), ["spec.replicas"], id="edit"
        ),
        pytest.param(
            child("new", replicas=7), child("new", replicas=1, image="a"), ["spec.replicas", "spec.image"], id="two"
        ),
        pytest.param(
            child("old", replicas=7, image="a"), child("new", replicas=1, image="a"), [], id="a change of the spec"
        ),
        pytest.param(child("new", replicas=1, image="a"), child("new", replicas=1, image="a"), [], id="no change"),
        pytest.param(
            child("new", replicas=7, image="a"), child("new", replicas=7, image="a"), [], id="changed by a webhook"
        ),
    ],
)
def test_restored_fields(before: Unstructured, live: Unstructured, expected: list[str]) -> None:
    desired = {"metadata": {"name": "demo", "labels": {"tier": "web"}}, "spec": {"replicas": 1, "image": "a"}}
    assert restored(before, live, desired) == expected


@pytest.mark.parametrize("name", ["demo", "d" * 70], ids=["short", "cut in the label"])
async def test_the_pods_of_a_component_of_an_object(client: Client, name: str) -> None:
    owner = CoderControlPlane.decode(msgspec.json.encode({"metadata": {"namespace": "ns", "name": name}, "spec": {}}))
    own = labels("coder", owner)
    found: Cache[Unstructured] = Cache()
    children = children_of(client, found)
    assert children.pods("coder", owner) == []
    for version, (pod, namespace, pod_labels) in enumerate(
        [
            ("b", "ns", own),
            ("a", "ns", {**own, "pod-template-hash": "1"}),
            ("other-namespace", "elsewhere", own),
            ("other-component", "ns", {**own, COMPONENT: "coder-provisioner"}),
            ("other-instance", "ns", {**own, INSTANCE: own[INSTANCE][:-1]}),
            ("no-instance", "ns", {COMPONENT: own[COMPONENT]}),
            ("no-labels", "ns", {}),
        ],
        start=1,
    ):
        metadata = {"namespace": namespace, "name": pod, "labels": pod_labels, "resourceVersion": str(version)}
        found.update("", Unstructured.decode(msgspec.json.encode({"metadata": metadata})))
    assert [pod.key for pod in children.pods("coder", owner)] == [Key("ns", "a"), Key("ns", "b")]


async def make_owner(client: Client, namespace: str, name: str) -> CoderControlPlane:
    return await client.create(CONTROL_PLANE, {"metadata": {"namespace": namespace, "name": name}, "spec": {}})


def reference(owner: CoderControlPlane, **more: bool) -> Manifest:
    identity = {"apiVersion": CONTROL_PLANE.api_version, "kind": CONTROL_PLANE.name}
    return {**identity, "name": owner.metadata.name, "uid": owner.metadata.uid, **more}


async def make_account(client: Client, namespace: str, *owners: Manifest) -> Unstructured:
    metadata = {"namespace": namespace, "name": "demo", "ownerReferences": list(owners)}
    return await client.create(SERVICE_ACCOUNT, {"metadata": metadata})


async def test_a_child_that_is_released_keeps_its_other_owners(client: Client, namespace: str) -> None:
    owner, other = [await make_owner(client, namespace, name) for name in ("owner", "other")]
    account = await make_account(client, namespace, reference(owner, controller=True), reference(other))
    children = children_of(client)
    await children.release(SERVICE_ACCOUNT, owner, account)
    live = (await client.get(SERVICE_ACCOUNT, account.key)).manifest
    assert live["metadata"]["ownerReferences"] == [reference(other)]


async def test_a_child_that_is_released_and_had_no_other_owner_has_none(client: Client, namespace: str) -> None:
    owner = await make_owner(client, namespace, "owner")
    account = await make_account(client, namespace, reference(owner, controller=True, blockOwnerDeletion=True))
    children = children_of(client)
    await children.release(SERVICE_ACCOUNT, owner, account)
    assert "ownerReferences" not in (await client.get(SERVICE_ACCOUNT, account.key)).manifest["metadata"]


async def test_a_concurrent_owner_reference_is_a_conflict(client: Client, namespace: str) -> None:
    owner, other = [await make_owner(client, namespace, name) for name in ("owner", "other")]
    account = await make_account(client, namespace, reference(owner, controller=True))
    both = [reference(owner, controller=True), reference(other)]
    await client.merge(SERVICE_ACCOUNT, account.key, {"metadata": {"ownerReferences": both}})
    children = children_of(client)
    with pytest.raises(errors.Conflict):
        await children.release(SERVICE_ACCOUNT, owner, account)
    live = (await client.get(SERVICE_ACCOUNT, account.key)).manifest
    assert live["metadata"]["ownerReferences"] == both


async def test_a_dry_run_changes_nothing(client: Client, namespace: str) -> None:
    """It is rejected like the write, and writes nothing if it is accepted."""
    children = children_of(client)
    key = Key(namespace, "demo")
    await children.dry_run(SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": "demo"}})
    with pytest.raises(errors.NotFound):
        await client.get(SERVICE_ACCOUNT, key)
    account = await make_account(client, namespace)
    await children.dry_run(
        SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": "demo", "labels": {"a": "b"}}}
    )
    assert await client.get(SERVICE_ACCOUNT, key) == account
    with pytest.raises(errors.Invalid):
        await children.dry_run(
            SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": "demo", "labels": {"a": "not a value!"}}}
        )


@pytest.mark.parametrize(("message", "refused"), [("does not support dry run", False), ("not today", True)])
async def test_a_webhook_without_dry_run_rejects_nothing(message: str, refused: bool) -> None:
    status = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": f'admission webhook "w" {message}'}
    async with Api(reply(status, 400)) as api, Http(api.config, "tests", Metrics()) as http:
        client = Client(http, "tests")
        children = children_of(client)
        with pytest.raises(errors.Invalid) if refused else nullcontext():
            await children.dry_run(SERVICE_ACCOUNT, {"metadata": {"namespace": "default", "name": "demo"}})
    assert api.requests[0].query["dryRun"] == "All"
