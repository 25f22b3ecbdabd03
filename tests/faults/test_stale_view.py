"""An operator that is shown the past deletes and rotates nothing that the present still needs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY, CoderControlPlane
from coder_k8s.controllers import controlplane
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, newer
from tests.controllers.controlplane.planes import manifest
from tests.e2e.conftest import admin
from tests.faults.stale_views import PATIENCE, Stale, now, stale
from tests.support import eventually
from tests.support.crashes import Clock, Operator, Trial
from tests.support.idle import idle, passes
from tests.support.operators import running
from tests.support.rotations import OURS, REQUEST, change_tags, rotation_namespace
from tests.support.workspaceproxies import NAME, ProxyNamespace, proxy_namespace

__all__ = ["admin", "stale"]

EXPOSED: dict[str, Any] = {"expose": {"ingress": {"host": "coder.example.com"}}}


async def collect_garbage(client: Client, namespace: str) -> None:
    """Delete what belonged to an object that is gone."""
    for kind in (SECRET, DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING):
        async for page in client.list(kind, namespace, labels=OURS):
            for item in page.items:
                await client.delete(kind, kind.type.decode(item), unchanged=False)


async def test_a_child_that_an_older_spec_did_not_want_stays(
    admin: Client, namespace: str, operator_kubeconfig: Path, stale: Stale
) -> None:
    key = Key(namespace, "demo")
    await admin.create(CONTROL_PLANE, manifest(namespace, **EXPOSED))
    async with running(operator_kubeconfig, [namespace], controlplane.build) as runtime:
        ingresses = runtime.informers[INGRESS]
        await eventually(lambda: ingresses.get(key) is not None, PATIENCE)
        await idle(runtime)
    before = await admin.get(INGRESS, key)
    await admin.merge(CONTROL_PLANE, key, {"spec": {"expose": None}})
    version = await now(admin, namespace)
    await admin.merge(CONTROL_PLANE, key, {"spec": EXPOSED})
    async with stale(version) as (kubeconfig, past), running(kubeconfig, [namespace], controlplane.build) as runtime:
        planes: Cache[CoderControlPlane] = runtime.informers[CONTROL_PLANE]
        await eventually(lambda: passes(runtime) >= 2, PATIENCE)
        assert not is_exposed(planes.get(key)), "this is not the past"
        past.catch_up()
        await eventually(lambda: is_exposed(planes.get(key)), PATIENCE)
        await idle(runtime)
        assert (await admin.get(INGRESS, key)).metadata.uid == before.metadata.uid


def is_exposed(plane: CoderControlPlane | None) -> bool:
    return plane is not None and plane.spec.expose is not None


@pytest.fixture
async def trial(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Trial]:
    clock = Clock()
    async with rotation_namespace(cluster.kubeconfig, namespace, clock) as place:
        trial = Trial(place, operator_kubeconfig, clock)
        await trial.operator.start()
        await place.make()
        assert await trial.rest()
        yield trial


def key_ids(trial: Trial) -> set[str]:
    return {found.key.id for found in trial.site.found()}


async def relive(trial: Trial, version: str, stale: Stale) -> None:
    """Let the operator look at the past for some time, and see that coderd keeps its keys; then let it catch up."""
    await trial.operator.kill()
    present = key_ids(trial)
    async with stale(version) as (kubeconfig, past):
        trial.operator = Operator(kubeconfig, trial.site, trial.clock)
        await trial.operator.start()
        for _ in range(3):
            assert await trial.operator.idle()
            assert key_ids(trial) == present
            trial.operator.reconcile()
        past.catch_up()
        try:
            assert await eventually(trial.rest, PATIENCE)
        finally:
            await trial.operator.kill()


async def test_a_rotation_that_was_asked_for_once_is_not_done_again(trial: Trial, stale: Stale) -> None:
    [old] = key_ids(trial)
    await trial.operator.kill()
    await trial.site.client.merge(PROVISIONER, trial.site.key, {"metadata": {"annotations": {REQUEST: "please"}}})
    version = await now(trial.site.client, trial.site.namespace)
    await trial.restart()
    assert await trial.rest(replaced=old)
    rotated = key_ids(trial)
    await relive(trial, version, stale)
    assert key_ids(trial) == rotated


async def test_a_key_that_bears_the_name_of_one_that_retired_stays(trial: Trial, stale: Stale) -> None:
    await change_tags(trial.site, 1)
    assert await trial.operator.idle()
    await trial.operator.kill()
    while await trial.pods.sync():  # nobody is left who uses the key that retires
        pass
    version = await now(trial.site.client, trial.site.namespace)
    await trial.restart()
    assert await trial.rest()
    await change_tags(trial.site, 2)
    assert await trial.operator.idle()
    trial.clock.advance(hours=1)  # longer than any grace, also for those who use the key that is to retire now
    trial.pods.excuse()
    await relive(trial, version, stale)


async def test_a_provisioner_that_followed_its_namesake_keeps_its_key(trial: Trial, stale: Stale) -> None:
    trial.pods.excuse()
    await trial.operator.kill()
    await trial.site.delete(PROVISIONER, trial.site.name)
    version = await now(trial.site.client, trial.site.namespace)
    await trial.restart()
    assert await trial.rest()
    assert not key_ids(trial)
    await collect_garbage(trial.site.client, trial.site.namespace)
    await trial.site.make()
    assert await trial.rest()
    remade = key_ids(trial)
    await relive(trial, version, stale)
    assert key_ids(trial) == remade


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProxyNamespace]:
    async with proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        await place.make(NAME)
        async with place.operator() as operator:
            await place.ready(operator)
        yield place


async def review(place: ProxyNamespace, version: str, stale: Stale) -> None:
    """Let the operator look at the past, then let it catch up; coderd must keep its proxy and the token."""
    [before] = place.proxies.values()
    token, changes = await place.token(), place.changes()
    async with stale(version) as (kubeconfig, past):
        place.kubeconfig = kubeconfig
        async with place.operator() as operator:
            await eventually(lambda: passes(operator.runtime) >= 2, PATIENCE)
            past.catch_up()
            live = await place.get()
            proxies = operator.runtime.informers[WORKSPACE_PROXY]
            await eventually(
                lambda: not newer(live.metadata.resource_version, proxies.last_sync_version(place.namespace))
            )
            await operator.wait_idle()
    [after] = place.proxies.values()
    assert (after.id, await place.token(), place.changes()) == (before.id, token, changes)


async def test_a_token_is_not_made_anew_for_a_secret_that_was_missing_once(place: ProxyNamespace, stale: Stale) -> None:
    await place.delete(SECRET, f"{NAME}-proxy-token")
    version = await now(place.client, place.namespace)
    async with place.operator() as operator:
        await place.ready(operator)
    assert await place.token()
    await review(place, version, stale)


async def test_a_proxy_that_followed_its_namesake_stays_registered(place: ProxyNamespace, stale: Stale) -> None:
    await place.delete(WORKSPACE_PROXY, NAME)
    version = await now(place.client, place.namespace)
    async with place.operator() as operator:
        await place.gone(WORKSPACE_PROXY, NAME)
        assert not place.proxies
        await collect_garbage(place.client, place.namespace)
        await place.make(NAME)
        await place.ready(operator)
    await review(place, version, stale)


async def test_a_proxy_that_is_wanted_again_does_not_retire(place: ProxyNamespace, stale: Stale) -> None:
    """In the past its pods ran with the token of another one, and it was on its way out."""
    await place.put_secret("given", token="somebody:else")
    await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL=place.coderd.url)
    async with place.operator() as operator:
        await place.condition("Registered", "NotManaged")
        await operator.wait_idle()
    assert (await place.get()).status.retiring_proxies
    await place.roll_out()
    version = await now(place.client, place.namespace)
    await place.change(bootstrap=place.bootstrap, proxySessionTokenSecretRef=None, primaryAccessURL=None)
    async with place.operator() as operator:
        await place.ready(operator)
    await review(place, version, stale)
