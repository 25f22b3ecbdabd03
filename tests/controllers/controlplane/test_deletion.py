"""Deletion of a control plane: it always ends, and leaves no children."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator

from .administrator import Administrator, administrator, operator_of

CHILDREN: tuple[Kind[Unstructured], ...] = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS)
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Unstructured, namespaced=False)
LATER = timedelta(minutes=5, seconds=1)

build = partial(wiring.build, allow_workspace_namespaces=["test-*"])


@pytest.fixture
async def admin(whole_cluster: Cluster) -> AsyncIterator[Administrator]:
    async with administrator(whole_cluster.kubeconfig) as admin:
        yield admin


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


async def test_deletion_of_the_namespace_is_not_blocked(whole_cluster: Cluster, admin: Administrator) -> None:
    async with Operator(operator_of(whole_cluster), [""], build) as operator:
        key = await admin.make(await admin.make_namespace())
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
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
