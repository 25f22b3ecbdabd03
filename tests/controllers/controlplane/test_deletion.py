"""Deletion of a control plane: it always ends, and leaves no children."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.rbac import FINALIZER
from coder_k8s.controllers.labels import MANAGED, PAUSED
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import eventually
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator

from .administrator import Administrator, administrator, operator_of, writes

CHILDREN: tuple[Kind[Unstructured], ...] = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS)
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Unstructured, namespaced=False)
LATER = timedelta(minutes=5, seconds=1)

build = partial(wiring.build, allow_workspace_namespaces=["test-*"])


@pytest.fixture
async def admin(whole_cluster: Cluster) -> AsyncIterator[Administrator]:
    async with administrator(whole_cluster.kubeconfig) as admin:
        yield admin


async def spread(admin: Administrator, number: int = 2) -> tuple[Key, list[str]]:
    """A control plane with Roles in other namespaces."""
    home, *places = [await admin.make_namespace() for _ in range(number + 1)]
    key = await admin.make(home, rbac={"workspaceNamespaces": places})
    await admin.condition(key, "WorkspaceRBACReady", "Applied")
    assert (await admin.plane(key)).metadata.finalizers == [FINALIZER]
    return key, places


async def nothing_left(admin: Administrator, places: list[str]) -> None:
    for place in places:
        assert await admin.granted(place) == set()


async def test_all_children_have_an_owner_reference(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path
) -> None:
    async with administrator(cluster.kubeconfig) as admin:
        namespace = await admin.make_namespace()
        async with Operator(operator_kubeconfig, [namespace], build) as operator:
            key = await admin.make(namespace, expose={"ingress": {"host": "coder.example.com"}})
            await admin.condition(key, "Exposed", "Applied")
            plane = await admin.plane(key)
            assert plane.metadata.finalizers == []
            for kind in CHILDREN:
                [child] = await admin.all(kind, namespace, MANAGED)
                [owner] = child.metadata.owner_references
                assert (owner.uid, owner.controller, owner.block_owner_deletion) == (plane.metadata.uid, True, True)

            async with operator.one_more_reconcile():
                await admin.delete(CONTROL_PLANE, key)
            await admin.gone(CONTROL_PLANE, key)
            before = operator.write_requests()
            async with operator.one_more_reconcile():  # like garbage collection
                await admin.delete(SERVICE, key)
            assert operator.write_requests() == before
            assert await admin.find(SERVICE, key) is None


async def test_restarted_operator_finishes_a_deletion(whole_cluster: Cluster, admin: Administrator) -> None:
    async with Operator(operator_of(whole_cluster), [""], build):
        key, places = await spread(admin, 3)
    await admin.delete(CONTROL_PLANE, key)
    [begun] = await admin.all(ROLE_BINDING, places[0], MANAGED)
    await admin.delete(ROLE_BINDING, begun.key)
    await admin.delete(NAMESPACE, Key("", places[1]))
    assert (await admin.plane(key)).deleting
    async with Operator(operator_of(whole_cluster), [""], build):
        await admin.gone(CONTROL_PLANE, key)
    await nothing_left(admin, places)


async def test_deletion_right_after_creation_leaves_nothing(whole_cluster: Cluster, admin: Administrator) -> None:
    home, place = [await admin.make_namespace() for _ in range(2)]
    async with Operator(operator_of(whole_cluster), [""], build) as operator:

        async def flash(number: int) -> None:
            key = await admin.make(home, f"flash-{number}", rbac={"workspaceNamespaces": [place]})
            await asyncio.sleep(number * 0.005)  # each at another time of its first reconcile
            await admin.delete(CONTROL_PLANE, key)
            await admin.gone(CONTROL_PLANE, key)

        await asyncio.gather(*(flash(number) for number in range(20)))
        await operator.wait_idle()
        await eventually(lambda: _empty(admin, place))


async def test_removed_finalizer_leaves_no_roles(whole_cluster: Cluster, admin: Administrator) -> None:
    """The API server may drop a finalizer that is added during the deletion, and a user may remove it."""
    async with Operator(operator_of(whole_cluster), [""], build) as operator:
        key, places = await spread(admin)
        async with operator.one_more_reconcile():
            await admin.annotate(key, {PAUSED: "true"})
        async with operator.one_more_reconcile():
            await admin.delete(CONTROL_PLANE, key)
        await admin.client.merge(CONTROL_PLANE, key, {"metadata": {"finalizers": None}})
        for place in places:
            await eventually(partial(_empty, admin, place))


async def test_paused_deletion_waits_until_it_is_resumed(whole_cluster: Cluster, admin: Administrator) -> None:
    async with Operator(operator_of(whole_cluster), [""], build) as operator:
        key, places = await spread(admin)
        async with operator.one_more_reconcile():
            await admin.annotate(key, {PAUSED: "true"})
        before = writes(operator), [await admin.granted(place) for place in places]
        async with operator.one_more_reconcile():
            await admin.delete(CONTROL_PLANE, key)
        await admin.condition(key, "Ready", "Paused")
        after = [await admin.granted(place) for place in places]
        assert after == before[1]
        assert writes(operator) <= before[0] + 1, "at most the status, because the deletion starts a new generation"

        await admin.annotate(key, {PAUSED: None})
        await admin.gone(CONTROL_PLANE, key)
        await nothing_left(admin, places)


async def test_deletion_of_the_namespace_is_not_blocked(whole_cluster: Cluster, admin: Administrator) -> None:
    async with Operator(operator_of(whole_cluster), [""], build) as operator:
        key, places = await spread(admin)
        await admin.delete(NAMESPACE, Key("", key.namespace))
        # In the order of the namespace controller; nothing can be created there any more.
        for kind in (DEPLOYMENT, SERVICE):
            async with operator.one_more_reconcile():
                await admin.delete(kind, key)
        refused = await admin.condition(key, "Stalled", "Forbidden")
        assert "being terminated" in refused.message
        await operator.wait_idle()
        quiet = operator.reconciles(), operator.write_requests()
        await asyncio.sleep(1)
        assert (operator.reconciles(), operator.write_requests()) == quiet

        await admin.delete(CONTROL_PLANE, key)
        await admin.gone(CONTROL_PLANE, key)
        await nothing_left(admin, places)


async def test_workspace_namespace_that_is_being_deleted_gets_no_roles(
    whole_cluster: Cluster, admin: Administrator
) -> None:
    async with Operator(operator_of(whole_cluster), [""], build):
        key, [place, other] = await spread(admin)
        await admin.delete(NAMESPACE, Key("", place))
        assert place in (await admin.condition(key, "WorkspaceRBACReady", "NamespaceMissing")).message
        await eventually(lambda: _empty(admin, place))
        assert await admin.granted(other)
        await admin.delete(CONTROL_PLANE, key)
        await admin.gone(CONTROL_PLANE, key)
        await nothing_left(admin, [place, other])


async def _empty(admin: Administrator, place: str) -> bool:
    return await admin.granted(place) == set()


@pytest.fixture
async def stuck(whole_cluster: Cluster, admin: Administrator) -> AsyncIterator[tuple[Key, str, str]]:
    """A control plane that is being deleted; the operator may delete only its Roles in the second namespace."""
    async with Operator(operator_of(whole_cluster), [""], build):
        key, [closed, open_] = await spread(admin)
    operator = await admin.client.get(CLUSTER_ROLE, Key("", "coder-k8s"))
    rules = operator.manifest["rules"]
    less = [rule if "roles" not in rule["resources"] else {**rule, "verbs": _but_delete(rule)} for rule in rules]
    await admin.client.merge(CLUSTER_ROLE, operator.key, {"rules": less})
    await allow_deletion(admin, open_)
    await admin.delete(CONTROL_PLANE, key)
    yield key, closed, open_
    await admin.client.merge(CLUSTER_ROLE, operator.key, {"rules": rules})


def _but_delete(rule: dict[str, Any]) -> list[str]:
    return [verb for verb in rule["verbs"] if verb != "delete"]


async def allow_deletion(admin: Administrator, namespace: str) -> None:
    group = "rbac.authorization.k8s.io"
    metadata = {"namespace": namespace, "name": "cleanup"}
    rule = {"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["delete"]}
    await admin.client.create(ROLE, {"metadata": metadata, "rules": [rule]})
    reference = {"apiGroup": group, "kind": "Role", "name": "cleanup"}
    subject = {"kind": "ServiceAccount", "name": "coder-k8s", "namespace": "coder-system"}
    await admin.client.create(ROLE_BINDING, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})


async def test_cleanup_is_given_up_after_its_bound_with_an_event(
    whole_cluster: Cluster, admin: Administrator, stuck: tuple[Key, str, str]
) -> None:
    key, closed, open_ = stuck
    ahead = timedelta()
    async with Operator(operator_of(whole_cluster), [""], build, now=lambda: datetime.now(UTC) + ahead) as operator:
        await eventually(lambda: _empty(admin, open_))
        await eventually(lambda: operator.reconciles() > 2)  # it is retried
        assert (await admin.plane(key)).metadata.finalizers == [FINALIZER]
        ahead = LATER
        await admin.gone(CONTROL_PLANE, key)

        async def given_up() -> list[Any]:
            return [event for event in await admin.events(key) if event["reason"] == "CleanupGivenUp"]

        [event] = await eventually(given_up)
    left = await admin.granted(closed)
    assert len(left) == 2
    for kind, name in left:
        assert f"{kind} {closed}/{name}" in event["note"]
    assert open_ not in event["note"]
