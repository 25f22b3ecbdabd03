"""An operator with stale caches deletes and rotates nothing that is still needed."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY, CoderControlPlane
from coder_k8s.controllers import controlplane
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from tests.controllers.controlplane.planes import manifest
from tests.e2e.conftest import admin
from tests.faults.stale_views import TIMEOUT, Stale, key_ids, now, reconcile_stale_provisioner, reconcile_stale_proxy
from tests.support import eventually
from tests.support.crashes import CrashRun
from tests.support.forwarding import StaleView
from tests.support.interceptor import Interceptor, Request
from tests.support.operators import Operator
from tests.support.rotations import MANAGED, REQUEST, change_tags
from tests.support.workspaceproxies import NAME, ProxyNamespace

__all__ = ["admin"]

T = TypeVar("T")

EXPOSED: dict[str, Any] = {"expose": {"ingress": {"host": "coder.example.com"}}}


async def collect_garbage(client: Client, namespace: str) -> None:
    """Delete the children of a deleted object."""
    for kind in (SECRET, DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING):
        async for page in client.list(kind, namespace, labels=MANAGED):
            for item in page.items:
                await client.delete(kind, kind.type.decode(item), unchanged=False)


async def test_a_child_that_only_the_current_spec_needs_is_kept(
    admin: Client, namespace: str, operator_kubeconfig: Path, stale: Stale
) -> None:
    key = Key(namespace, "demo")
    await admin.create(CONTROL_PLANE, manifest(namespace, **EXPOSED))
    async with Operator(operator_kubeconfig, [namespace], controlplane.build) as operator:
        ingresses = operator.informers[INGRESS]
        await eventually(lambda: ingresses.get(key) is not None, TIMEOUT)
        await operator.wait_idle()
    before = await admin.get(INGRESS, key)
    await admin.merge(CONTROL_PLANE, key, {"spec": {"expose": None}})
    version = await now(admin, namespace)
    await admin.merge(CONTROL_PLANE, key, {"spec": EXPOSED})
    async with (
        stale(version) as (kubeconfig, view),
        Operator(kubeconfig, [namespace], controlplane.build) as operator,
    ):
        planes: Cache[CoderControlPlane] = operator.informers[CONTROL_PLANE]
        await eventually(lambda: operator.reconciles() >= 2, TIMEOUT)
        assert not is_exposed(planes.get(key)), "the cache is not stale"
        await view.catch_up()
        await eventually(lambda: is_exposed(planes.get(key)), TIMEOUT)
        await operator.wait_idle()
        assert (await admin.get(INGRESS, key)).metadata.uid == before.metadata.uid


def is_exposed(plane: CoderControlPlane | None) -> bool:
    return plane is not None and plane.spec.expose is not None


async def test_a_completed_rotation_request_is_not_repeated(steady: CrashRun, stale: Stale) -> None:
    [old] = key_ids(steady)
    await steady.operator.kill()
    await steady.site.client.merge(PROVISIONER, steady.site.key, {"metadata": {"annotations": {REQUEST: "please"}}})
    version = await now(steady.site.client, steady.site.namespace)
    await steady.restart()
    assert await steady.wait_steady(replaced=old)
    rotated = key_ids(steady)
    await reconcile_stale_provisioner(steady, version, stale)
    assert key_ids(steady) == rotated


async def test_a_key_with_the_name_of_a_retired_key_is_kept(steady: CrashRun, stale: Stale) -> None:
    await change_tags(steady.site, 1)
    assert await steady.operator.wait_idle()
    await steady.operator.kill()
    while await steady.pods.sync():  # until no daemon uses the retiring key
        pass
    version = await now(steady.site.client, steady.site.namespace)
    await steady.restart()
    assert await steady.wait_steady()
    await change_tags(steady.site, 2)
    assert await steady.operator.wait_idle()
    steady.site.clock.advance(hours=1)  # longer than any grace period
    steady.pods.allow_key_loss()
    await reconcile_stale_provisioner(steady, version, stale)


class CatchUp(Interceptor):
    """Lets the cache of Secrets become current while the operator asks coderd for the key that it has read."""

    def __init__(self, server: StaleView, where: Key, version: str) -> None:
        super().__init__()
        self.operator: Operator
        self.looked_up = 0
        self._server = server
        self._where = where
        self._version = version

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        if "/api/v2/provisionerkeys/" in request.target:
            self.looked_up += 1
            await self._server.catch_up(SECRET.plural)
            await eventually(self._is_current, TIMEOUT)
        return await super().intercept(request, send)

    def _is_current(self) -> bool:
        found = self.operator.informers[SECRET].get(self._where)
        return found is not None and found.metadata.resource_version == self._version


async def test_an_earlier_key_does_not_replace_a_later_one(steady: CrashRun, stale: Stale) -> None:
    site = steady.site
    version = await now(site.client, site.namespace)
    await change_tags(site, 1)
    assert await steady.operator.wait_idle()
    await steady.operator.kill()
    where = Key(site.namespace, f"{site.name}-provisioner-key")
    rotated = await site.client.get(SECRET, where)
    async with stale(version) as (kubeconfig, server):
        site.kubeconfig = kubeconfig
        await server.catch_up(DEPLOYMENT.plural)
        catch_up = CatchUp(server, where, rotated.metadata.resource_version)
        operator = catch_up.operator = site.operator(interceptor=catch_up)
        await operator.start()
        try:
            assert await operator.wait_idle(stale=True)
        finally:
            await operator.kill()
    assert catch_up.looked_up
    assert (await site.client.get(SECRET, where)).manifest["data"] == rotated.manifest["data"]


async def test_a_recreated_provisioner_keeps_its_key(steady: CrashRun, stale: Stale) -> None:
    steady.pods.allow_key_loss()
    await steady.operator.kill()
    await steady.site.delete(PROVISIONER, steady.site.name)
    version = await now(steady.site.client, steady.site.namespace)
    await steady.restart()
    assert await steady.wait_steady()
    assert not key_ids(steady)
    await collect_garbage(steady.site.client, steady.site.namespace)
    await steady.site.make()
    assert await steady.wait_steady()
    remade = key_ids(steady)
    await reconcile_stale_provisioner(steady, version, stale)
    assert key_ids(steady) == remade


async def test_a_token_is_not_replaced_when_its_secret_exists_again(ready_proxy: ProxyNamespace, stale: Stale) -> None:
    await ready_proxy.delete(SECRET, f"{NAME}-proxy-token")
    version = await now(ready_proxy.client, ready_proxy.namespace)
    async with ready_proxy.operator() as operator:
        await ready_proxy.ready(operator)
    assert await ready_proxy.token()
    await reconcile_stale_proxy(ready_proxy, version, stale)


async def test_a_recreated_proxy_stays_registered(ready_proxy: ProxyNamespace, stale: Stale) -> None:
    await ready_proxy.delete(WORKSPACE_PROXY, NAME)
    version = await now(ready_proxy.client, ready_proxy.namespace)
    async with ready_proxy.operator() as operator:
        await ready_proxy.gone(WORKSPACE_PROXY, NAME)
        assert not ready_proxy.proxies
        await collect_garbage(ready_proxy.client, ready_proxy.namespace)
        await ready_proxy.make(NAME)
        await ready_proxy.ready(operator)
    await reconcile_stale_proxy(ready_proxy, version, stale)


async def test_a_proxy_that_is_needed_again_does_not_retire(ready_proxy: ProxyNamespace, stale: Stale) -> None:
    """In the stale state its pods use the token of another proxy, and it is retiring."""
    await ready_proxy.put_secret("given", token="foreign:token")
    await ready_proxy.change(
        bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL=ready_proxy.coderd.url
    )
    async with ready_proxy.operator() as operator:
        await ready_proxy.condition("Registered", "NotManaged")
        await operator.wait_idle()
    assert (await ready_proxy.get()).status.retiring_proxies
    await ready_proxy.roll_out()
    version = await now(ready_proxy.client, ready_proxy.namespace)
    await ready_proxy.change(bootstrap=ready_proxy.bootstrap, proxySessionTokenSecretRef=None, primaryAccessURL=None)
    async with ready_proxy.operator() as operator:
        await ready_proxy.ready(operator)
    await reconcile_stale_proxy(ready_proxy, version, stale)
