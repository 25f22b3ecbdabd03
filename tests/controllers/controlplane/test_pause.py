"""`coder.com/paused`: no changes until it is removed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.operators import Operator

from .administrator import Administrator, administrator, writes
from .planes import manifest


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Administrator]:
    async with administrator(cluster.kubeconfig) as admin:
        yield admin


async def is_paused(admin: Administrator, key: Key) -> None:
    assert (await admin.condition(key, "Ready", "Paused")).status == "Unknown"
    conditions = (await admin.plane(key)).status.conditions
    for type_ in ("Reconciling", "Stalled"):
        found = find(conditions, type_)
        assert found is not None
        assert (found.status, found.reason) == ("False", "Paused")


async def image(admin: Administrator, key: Key) -> str:
    deployment = (await admin.client.get(DEPLOYMENT, key)).manifest
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


async def test_paused_from_the_start_nothing_is_created(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    key = Key(namespace, "demo")
    written = manifest(namespace)
    written["metadata"]["annotations"] = {PAUSED: "true"}
    async with Operator(operator_kubeconfig, [namespace], wiring.build) as operator:
        await admin.client.create(CONTROL_PLANE, written)
        await is_paused(admin, key)
        await operator.wait_idle()
        assert writes(operator) == 1, "only the status"
        assert await admin.all(SERVICE, namespace) == []

        await admin.annotate(key, {PAUSED: "false"})
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        assert await admin.find(SERVICE, key)


async def test_nothing_is_written_while_paused_and_everything_at_once_after(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with Operator(operator_kubeconfig, [namespace], wiring.build) as operator:
        key = await admin.make(namespace, image="coder:first")
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        async with operator.one_more_reconcile():
            before = writes(operator)
            await admin.annotate(key, {PAUSED: "true"})
        await is_paused(admin, key)
        assert writes(operator) == before + 1, "only the status"

        async with operator.one_more_reconcile():
            await admin.delete(SERVICE, key)
        async with operator.one_more_reconcile():
            await admin.client.merge(DEPLOYMENT, key, {"spec": {"replicas": 7}})
        assert writes(operator) == before + 1
        async with operator.one_more_reconcile():
            await admin.change(key, image="coder:second")
        await is_paused(admin, key)  # the new generation is recorded
        assert writes(operator) == before + 2
        assert await admin.find(SERVICE, key) is None
        assert await image(admin, key) == "coder:first"
        assert (await admin.plane(key)).status.observed_generation == 1, (
            "a generation that is not reconciled is not observed"
        )

        await admin.annotate(key, {PAUSED: None})
        await admin.condition(key, "Available", "NoReplicasReady")
        assert await admin.find(SERVICE, key)
        assert await image(admin, key) == "coder:second"
        assert (await admin.client.get(DEPLOYMENT, key)).manifest["spec"]["replicas"] == 1


async def test_restarted_operator_writes_nothing_for_a_paused_object(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with Operator(operator_kubeconfig, [namespace], wiring.build):
        key = await admin.make(namespace)
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        await admin.annotate(key, {PAUSED: "true"})
        await is_paused(admin, key)
    await admin.delete(SERVICE, key)
    async with Operator(operator_kubeconfig, [namespace], wiring.build) as operator:
        await eventually(lambda: operator.reconciles() > 0)
        await operator.wait_idle()
        assert operator.write_requests() == 0
