"""The status during a reconcile, and with conflicts."""

from typing import Any

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.workspaceproxy import objects
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from coder_k8s.kube.objects import Kind, Unstructured
from tests.support.history import recording
from tests.support.kstatus import kstatus, kubectl_waits
from tests.support.workspaceproxies import NAME, PLANE, ProxyNamespace, is_quota_exceeded, set_quota

LONG = f"{'a-workspace-proxy-with-a-name-' * 8}that-is-long"


async def test_intermediate_status_is_not_ready(place: ProxyNamespace) -> None:
    """From the first status on, generic tools wait until the object is ready."""
    async with recording(place.client, place.namespace, WORKSPACE_PROXY) as (states,), place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await states.until(NAME, lambda state: kstatus(state) == "Current")
    seen = [state for state in states.of(NAME) if state.get("status")]
    assert len(seen) > 3
    assert [kstatus(state) for state in seen[:-1]] == ["InProgress"] * (len(seen) - 1)
    assert all(kubectl_waits(state) for state in seen[:-1])


async def test_primary_url_of_a_control_plane(place: ProxyNamespace) -> None:
    await place.make_plane()
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.condition("Registered", "Registered", "True")
        await operator.wait_idle()
        assert (await place.get()).status.primary_access_url == f"http://{PLANE}.{place.namespace}.svc.cluster.local"


async def test_no_token_is_issued_that_cannot_be_stored(place: ProxyNamespace) -> None:
    """coderd returns a token once, and a new one disconnects running pods: the Secret must exist first."""
    await set_quota(place, used=1)
    async with place.operator() as operator:
        await place.make()
        assert await is_quota_exceeded(place)
        await place.condition("Stalled", "SecretRefused", "True")
        assert place.registrations() == 0
        await set_quota(place, used=0)
        await operator.later(seconds=31)
        await place.ready(operator)
        await set_quota(place, used=1)
        await place.delete(SECRET, f"{NAME}-proxy-token")
        assert await is_quota_exceeded(place)
        await operator.later(seconds=31)
        assert place.changes() == 0
        await set_quota(place, used=0)
        await operator.later(seconds=31)
        await place.ready(operator)
    assert (place.registrations(), place.changes()) == (1, 1)


@pytest.mark.parametrize("kind", [DEPLOYMENT, SERVICE], ids=str)
async def test_taken_name_of_a_child(place: ProxyNamespace, kind: Kind[Unstructured]) -> None:
    """The object of the other owner is not changed, and the condition names it."""
    labels = {"app": "theirs"}
    spec: dict[str, Any] = {"selector": labels, "ports": [{"port": 80}]}
    if kind is DEPLOYMENT:
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": pod}
    metadata = {"namespace": place.namespace, "name": f"wsproxy-{NAME}"}
    theirs = await place.client.create(kind, {"metadata": metadata, "spec": spec})
    async with place.operator() as operator:
        await place.make()
        condition = await place.condition("Stalled", "NameTaken", "True")
        assert f"wsproxy-{NAME}" in condition.message
        await operator.wait_idle()
        assert (operator.requeue_after() or 999) <= 60
    assert (await place.client.get(kind, theirs.key)).metadata.resource_version == theirs.metadata.resource_version


async def test_long_name(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make(LONG)
        await place.condition("TokenSecretReady", "SecretReady", name=LONG)
        await operator.wait_idle()
        assert list(place.proxies) == [LONG]
        assert await place.token(objects.secret_name(await place.get(LONG)))
        await place.delete(WORKSPACE_PROXY, LONG)
        await place.gone(WORKSPACE_PROXY, LONG)
    assert place.proxies == {}
