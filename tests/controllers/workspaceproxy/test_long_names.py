"""Truncated names: an earlier version derived some of them differently."""

import msgspec

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.names import derived
from coder_k8s.kube.kinds import DEPLOYMENT
from tests.support.workspaceproxies import ProxyNamespace

DASHES = f"{'a' * 45}-{'b' * 20}"
"""A dash where the name is truncated."""


async def test_deployment_of_an_earlier_version_is_replaced(place: ProxyNamespace) -> None:
    name = derived(DASHES, prefix="wsproxy-")
    earlier = name.replace("--", "-")
    assert earlier != name
    await place.put_secret("given", token="id:secret")
    made = await place.make(
        DASHES, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="https://coder.example.com"
    )
    async with place.operator() as operator:
        live = await place.deployment(name)
        await operator.wait_idle()
        owner = msgspec.to_builtins(WORKSPACE_PROXY.reference(made))
        metadata = {"namespace": place.namespace, "name": earlier, "labels": live.metadata.labels}
        await place.client.create(
            DEPLOYMENT, {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": live.manifest["spec"]}
        )
        await operator.wait_idle()
        assert await place.find(DEPLOYMENT, earlier), "pods run until others do"
        await place.roll_out(name=name)
        await place.gone(DEPLOYMENT, earlier)
        assert await place.find(DEPLOYMENT, name)
