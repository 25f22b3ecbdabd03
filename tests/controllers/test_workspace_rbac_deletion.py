"""Deletion of the owner of Roles in other namespaces: it always ends, and leaves no Roles."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from coder_k8s.controllers.labels import MANAGED, PAUSED
from coder_k8s.controllers.workspace_roles import FINALIZER
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import eventually
from tests.support.children import collect_garbage, managed
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator
from tests.support.policies import drop_finalizers

from .controlplane.administrator import operator_of, writes
from .workspace_owners import EVERYWHERE, READY, Owners, Subject, both_kinds, owners_of

pytestmark = both_kinds
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Unstructured, namespaced=False)
CHILDREN = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)
LATER = timedelta(minutes=5, seconds=1)


@pytest.fixture
async def owners(whole_cluster: Cluster, subject: Subject) -> AsyncIterator[Owners]:
    async with owners_of(whole_cluster.kubeconfig, subject) as owners:
        yield owners


def operator(cluster: Cluster, subject: Subject, **options: Any) -> Operator:
    return Operator(operator_of(cluster), EVERYWHERE, subject.allowing("test-*"), **options)


async def nothing_left(owners: Owners, places: list[str]) -> None:
    for place in places:
        assert await owners.granted(place) == set()


async def is_empty(owners: Owners, place: str) -> bool:
    return await owners.granted(place) == set()


async def test_restarted_operator_finishes_a_deletion(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    async with operator(whole_cluster, subject):
        key, places = await owners.spread(3)
    await owners.delete_owner(key)
    [begun] = await owners.all(ROLE_BINDING, places[0], MANAGED)
    await owners.delete(ROLE_BINDING, begun.key)
    await owners.delete(NAMESPACE, Key("", places[1]))
    assert (await owners.get(key)).deleting
    async with operator(whole_cluster, subject):
        await owners.owner_gone(key)
    await nothing_left(owners, places)


async def test_deletion_right_after_creation_leaves_nothing(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    home, place = [await owners.make_namespace() for _ in range(2)]
    await owners.make(home, namespaces=[])
    async with operator(whole_cluster, subject) as running:

        async def flash(number: int) -> None:
            key = await owners.make(home, f"flash-{number}", namespaces=[place])
            await asyncio.sleep(number * 0.005)  # each at another time of its first reconcile
            await owners.delete_owner(key)
            await owners.owner_gone(key)

        await asyncio.gather(*(flash(number) for number in range(20)))
        await running.wait_idle()
        await eventually(lambda: is_empty(owners, place))


async def test_removed_finalizer_leaves_no_roles(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    """The API server may drop a finalizer that is added during the deletion, and a user may remove it."""
    async with operator(whole_cluster, subject) as running:
        key, places = await owners.spread()
        async with running.one_more_reconcile():
            await owners.annotate(key, {PAUSED: "true"})
        async with running.one_more_reconcile():
            await owners.delete_owner(key)
        await drop_finalizers(owners.client, subject.kind, key)
        for place in places:
            await eventually(partial(is_empty, owners, place))


async def test_finalizer_that_is_removed_while_no_operator_runs(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    """The next operator finds Roles of an object that does not exist. A living object with such Roles keeps them."""
    async with operator(whole_cluster, subject):
        key, places = await owners.spread()
        kept, [other] = await owners.spread(1)
    await drop_finalizers(owners.client, subject.kind, key)
    await owners.delete_owner(key)
    await owners.owner_gone(key)
    await collect_garbage(owners.client, await managed(owners.client, CHILDREN, [key.namespace]))
    assert await owners.granted(places[0])
    async with operator(whole_cluster, subject) as running:
        for place in places:
            await eventually(partial(is_empty, owners, place))
        await running.wait_idle()
        await owners.becomes(other, kept)


async def test_paused_deletion_waits_until_it_is_resumed(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    async with operator(whole_cluster, subject) as running:
        key, places = await owners.spread()
        async with running.one_more_reconcile():
            await owners.annotate(key, {PAUSED: "true"})
        before = writes(running), [await owners.granted(place) for place in places]
        async with running.one_more_reconcile():
            await owners.delete_owner(key)
        await owners.condition(key, "Ready", "Paused")
        after = [await owners.granted(place) for place in places]
        assert after == before[1]
        assert writes(running) <= before[0] + 1, "at most the status, because the deletion starts a new generation"

        await owners.annotate(key, {PAUSED: None})
        await owners.owner_gone(key)
        await nothing_left(owners, places)


async def test_deletion_of_the_namespace_is_not_blocked(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    async with operator(whole_cluster, subject) as running:
        key, places = await owners.spread()
        owner = await owners.get(key)
        await owners.delete(NAMESPACE, Key("", key.namespace))
        # As the namespace controller does; nothing can be created there any more.
        async with running.one_more_reconcile():
            await owners.delete(SERVICE_ACCOUNT, Key(key.namespace, subject.roles.account(owner)))
        async with running.one_more_reconcile():
            await owners.delete(ROLE, Key(key.namespace, subject.roles.names(owner, key.namespace).role))
        refused = await owners.condition(key, "Stalled", "Forbidden")
        assert "being terminated" in refused.message
        await running.wait_idle()
        quiet = running.reconciles(), running.write_requests()
        await asyncio.sleep(1)
        assert (running.reconciles(), running.write_requests()) == quiet

        await owners.delete_owner(key)
        await owners.owner_gone(key)
        await nothing_left(owners, places)


async def test_workspace_namespace_that_is_being_deleted_gets_no_roles(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    """And its deletion waits for nothing: the Roles in it have no finalizer."""
    async with operator(whole_cluster, subject):
        key, [place, other] = await owners.spread()
        for kind in (ROLE, ROLE_BINDING):
            assert [each.manifest["metadata"].get("finalizers") for each in await owners.all(kind, place)] == [None]
        await owners.delete(NAMESPACE, Key("", place))
        assert place in (await owners.condition(key, READY, "NamespaceMissing")).message
        await eventually(lambda: is_empty(owners, place))
        await owners.becomes(other, key)
        await owners.delete_owner(key)
        await owners.owner_gone(key)
        await nothing_left(owners, [place, other])


async def test_role_with_a_finalizer_of_another_client_does_not_block_the_deletion(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    """The owner of a workspace namespace cannot keep objects of another namespace alive."""
    async with operator(whole_cluster, subject):
        key, [place] = await owners.spread(1)
        [binding] = await owners.all(ROLE_BINDING, place, MANAGED)
        held = {"metadata": {"finalizers": ["example.com/wait"]}}
        await owners.client.merge(ROLE_BINDING, binding.key, held)
        await owners.delete_owner(key)
        await owners.owner_gone(key)
    left = await owners.client.get(ROLE_BINDING, binding.key)
    assert left.deleting
    await drop_finalizers(owners.client, ROLE_BINDING, binding.key)
    await nothing_left(owners, [place])


@pytest.fixture
async def stuck(whole_cluster: Cluster, owners: Owners, subject: Subject) -> AsyncIterator[tuple[Key, str, str]]:
    """An object that is being deleted; the operator may delete only its Roles in the second namespace."""
    async with operator(whole_cluster, subject):
        key, [closed, open_] = await owners.spread()
    role = await owners.client.get(CLUSTER_ROLE, Key("", "coder-k8s"))
    rules = role.manifest["rules"]
    less = [rule if "roles" not in rule["resources"] else {**rule, "verbs": _but_delete(rule)} for rule in rules]
    await owners.client.merge(CLUSTER_ROLE, role.key, {"rules": less})
    await allow_deletion(owners, open_)
    await owners.delete_owner(key)
    yield key, closed, open_
    await owners.client.merge(CLUSTER_ROLE, role.key, {"rules": rules})


def _but_delete(rule: dict[str, Any]) -> list[str]:
    return [verb for verb in rule["verbs"] if verb != "delete"]


async def allow_deletion(owners: Owners, namespace: str) -> None:
    group = "rbac.authorization.k8s.io"
    metadata = {"namespace": namespace, "name": "cleanup"}
    rule = {"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["delete"]}
    await owners.client.create(ROLE, {"metadata": metadata, "rules": [rule]})
    reference = {"apiGroup": group, "kind": "Role", "name": "cleanup"}
    account = {"kind": "ServiceAccount", "name": "coder-k8s", "namespace": "coder-system"}
    await owners.client.create(ROLE_BINDING, {"metadata": metadata, "roleRef": reference, "subjects": [account]})


async def test_cleanup_is_given_up_after_its_bound_with_an_event(
    whole_cluster: Cluster, owners: Owners, subject: Subject, stuck: tuple[Key, str, str]
) -> None:
    key, closed, open_ = stuck
    ahead = timedelta()
    async with operator(whole_cluster, subject, now=lambda: datetime.now(UTC) + ahead) as running:
        await eventually(lambda: is_empty(owners, open_))
        await eventually(lambda: running.reconciles() > 2)  # it is retried
        assert (await owners.get(key)).metadata.finalizers == [FINALIZER]
        ahead = LATER
        await owners.owner_gone(key)

        async def given_up() -> list[Any]:
            return [event for event in await owners.events(key) if event["reason"] == "CleanupGivenUp"]

        [event] = await eventually(given_up)
    left = await owners.granted(closed)
    assert len(left) == 2
    for kind, name in left:
        assert f"{kind} {closed}/{name}" in event["note"]
    assert open_ not in event["note"]
