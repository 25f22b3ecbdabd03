"""`coder.com/paused`: hands off until it is removed."""

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
from tests.support.idle import idle, one_more_pass
from tests.support.operators import running

from .administrator import Administrator, administrator, passes
from .planes import manifest, writes


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Administrator]:
    async with administrator(cluster.kubeconfig) as somebody:
        yield somebody


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


async def test_paused_from_the_start_nothing_is_made(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    key = Key(namespace, "demo")
    written = manifest(namespace)
    written["metadata"]["annotations"] = {PAUSED: "true"}
    async with running(operator_kubeconfig, [namespace], wiring.build) as runtime:
        await admin.client.create(CONTROL_PLANE, written)
        await is_paused(admin, key)
        await idle(runtime)
        assert writes(runtime) == 1, "the status, and nothing else"
        assert await admin.all(SERVICE, namespace) == []

        await admin.annotate(key, {PAUSED: "false"})
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        assert await admin.find(SERVICE, key)


async def test_nothing_is_written_while_paused_and_everything_at_once_after(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with running(operator_kubeconfig, [namespace], wiring.build) as runtime:
        key = await admin.make(namespace, image="coder:first")
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        async with one_more_pass(runtime):
            before = writes(runtime)
            await admin.annotate(key, {PAUSED: "true"})
        await is_paused(admin, key)
        assert writes(runtime) == before + 1, "the status, and nothing else"

        async with one_more_pass(runtime):
            await admin.delete(SERVICE, key)
        async with one_more_pass(runtime):
            await admin.client.merge(DEPLOYMENT, key, {"spec": {"replicas": 7}})
        assert writes(runtime) == before + 1
        async with one_more_pass(runtime):
            await admin.change(key, image="coder:second")
        await is_paused(admin, key)  # says of which generation that is true
        assert writes(runtime) == before + 2
        assert await admin.find(SERVICE, key) is None
        assert await image(admin, key) == "coder:first"
        assert (await admin.plane(key)).status.observed_generation == 1, "what was not acted upon was not observed"

        await admin.annotate(key, {PAUSED: None})
        await admin.condition(key, "Available", "NoReplicasReady")
        assert await admin.find(SERVICE, key)
        assert await image(admin, key) == "coder:second"
        assert (await admin.client.get(DEPLOYMENT, key)).manifest["spec"]["replicas"] == 1


async def test_restarted_operator_writes_nothing_about_what_is_paused(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with running(operator_kubeconfig, [namespace], wiring.build):
        key = await admin.make(namespace)
        await admin.condition(key, "WorkspaceRBACReady", "Applied")
        await admin.annotate(key, {PAUSED: "true"})
        await is_paused(admin, key)
    await admin.delete(SERVICE, key)
    async with running(operator_kubeconfig, [namespace], wiring.build) as runtime:
        await eventually(lambda: passes(runtime) > 0)
        await idle(runtime)
        assert writes(runtime) == 0
