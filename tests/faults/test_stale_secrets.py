"""A Secret that was missing and is back: an operator that knows only that it was missing makes no new key."""

from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.faults.stale_views import Stale, now, stale
from tests.faults.test_stale_view import key_ids, place, relive, review, trial
from tests.support.crashes import Trial
from tests.support.workspaceproxies import NAME, ProxyNamespace

__all__ = ["place", "stale", "trial"]

RESTORED = ("name", "namespace", "labels", "annotations", "ownerReferences")


async def restore(client: Client, key: Key) -> str:
    """Delete a Secret and put it back, as tools for backups do; the version at which it was missing."""
    kept = await client.get_manifest(SECRET, key)
    await client.delete(SECRET, await client.get(SECRET, key))
    version = await now(client, key.namespace)
    metadata = {name: value for name, value in kept["metadata"].items() if name in RESTORED}
    await client.create(SECRET, {"metadata": metadata, "type": kept["type"], "data": kept["data"]})
    return version


async def test_the_token_of_a_workspace_proxy(place: ProxyNamespace, stale: Stale) -> None:
    version = await restore(place.client, Key(place.namespace, f"{NAME}-proxy-token"))
    await review(place, version, stale)


async def test_the_key_of_a_provisioner(trial: Trial, stale: Stale) -> None:
    before = key_ids(trial)
    await trial.operator.kill()
    version = await restore(trial.site.client, Key(trial.site.namespace, f"{trial.site.name}-provisioner-key"))
    await relive(trial, version, stale)
    assert key_ids(trial) == before
