"""An operator whose cache lacks a Secret that was restored creates no new key or token."""

from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.faults.stale_views import Stale, key_ids, now, reconcile_stale_provisioner, reconcile_stale_proxy
from tests.support.crashes import CrashRun
from tests.support.workspaceproxies import NAME, ProxyNamespace

RESTORED = ("name", "namespace", "labels", "annotations", "ownerReferences")


async def restore(client: Client, key: Key) -> str:
    """Delete a Secret and restore it, as backup tools do; return the version at which it was missing."""
    kept = await client.get_manifest(SECRET, key)
    await client.delete(SECRET, await client.get(SECRET, key))
    version = await now(client, key.namespace)
    metadata = {name: value for name, value in kept["metadata"].items() if name in RESTORED}
    await client.create(SECRET, {"metadata": metadata, "type": kept["type"], "data": kept["data"]})
    return version


async def test_the_token_of_a_workspace_proxy_is_kept(ready_proxy: ProxyNamespace, stale: Stale) -> None:
    version = await restore(ready_proxy.client, Key(ready_proxy.namespace, f"{NAME}-proxy-token"))
    await reconcile_stale_proxy(ready_proxy, version, stale)


async def test_the_key_of_a_provisioner_is_kept(steady: CrashRun, stale: Stale) -> None:
    before = key_ids(steady)
    await steady.operator.kill()
    version = await restore(steady.site.client, Key(steady.site.namespace, f"{steady.site.name}-provisioner-key"))
    await reconcile_stale_provisioner(steady, version, stale)
    assert key_ids(steady) == before
