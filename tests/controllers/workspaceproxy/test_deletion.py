"""A registered proxy is deregistered when its object is deleted, and no deletion hangs."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server.proxies import register
from coder_k8s.dev.coderd_server.records import Proxy
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support.workspaceproxies import CREDENTIALS, FINALIZER, NAME, ONE, PLANE, ProxyNamespace

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
RBAC = Path(__file__).parents[3] / "config" / "rbac"


async def test_registered_proxy_is_deregistered(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
        assert place.coderd.url in await place.note("WorkspaceProxyDeregistered")
        await operator.wait_idle()
        assert NAME not in operator.metrics()
    assert place.proxies == {}
    assert place.coderd.state.count("DELETE", ONE) == 1


async def test_deletion_follows_the_status(place: ProxyNamespace) -> None:
    """A proxy that was renamed in coderd is deleted by its recorded ID."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
    state = place.coderd.state
    register(state, Proxy("theirs", "other", "Other", "/x.png", "", "ok", state.now()))
    await place.change(bootstrap={"proxyName": "other"})
    await place.delete(WORKSPACE_PROXY, NAME)
    async with place.operator():
        await place.gone(WORKSPACE_PROXY, NAME)
    assert list(place.proxies) == ["other"]


async def test_registration_with_a_lost_response_is_undone(place: ProxyNamespace) -> None:
    """The finalizer and the record of the name precede the request."""
    place.coderd.state.set(unanswered="POST")
    async with place.operator() as operator:
        await place.make()
        await place.condition("Registered", "CoderUnavailable", "Unknown")
        await operator.wait_idle()
        assert NAME in place.proxies
        assert (await place.get()).status.proxy_id == ""
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}


async def test_proxy_that_is_already_deleted(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.proxies.clear()
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)


async def test_foreign_proxy_stays(place: ProxyNamespace) -> None:
    state = place.coderd.state
    made = register(state, Proxy("theirs", NAME, "Theirs", "/x.png", "", "ok", state.now()))
    await place.put_secret("given", token=made["proxy_token"])
    async with place.operator() as operator:
        await place.make(proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL=place.coderd.url)
        await place.roll_out()
        await place.condition("Ready", "AllReady", "True")
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
        await operator.wait_idle()
    assert NAME in place.proxies
    assert state.requests.total() == 0


@pytest.mark.parametrize(
    "switches", [{"cut": True}, {"failing": True}, {"rate_limited": True}, {"sign_in_page": True}], ids=str
)
async def test_wait_for_coderd_is_bounded(place: ProxyNamespace, switches: dict[str, bool]) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.set(**switches)
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.note("WorkspaceProxyNotDeregistered")
        await operator.later(minutes=3)
        assert (await place.get()).metadata.finalizers == [FINALIZER]
        assert (operator.requeue_after() or 999) <= 5
        assert await place.events("WorkspaceProxyLeaked") == []
        await operator.later(minutes=3)
        await place.gone(WORKSPACE_PROXY, NAME)
        leaked = await place.note("WorkspaceProxyLeaked")
        assert NAME in leaked
        assert place.coderd.url in leaked
    assert NAME in place.proxies


async def test_coderd_that_recovers_in_time(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.set(failing=True)
        await place.delete(WORKSPACE_PROXY, NAME)
        await operator.later(minutes=1)
        place.coderd.state.set(failing=False)
        await operator.later(seconds=5)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}


async def test_expired_license_does_not_block_deletion(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.remove_licenses()
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.note("WorkspaceProxyNotDeregistered")
        await operator.later(minutes=6)
        await place.gone(WORKSPACE_PROXY, NAME)
        assert "Contact sales" in await place.note("WorkspaceProxyLeaked")


@pytest.mark.parametrize("back", [True, False])
async def test_deletion_waits_for_credentials(place: ProxyNamespace, back: bool) -> None:
    """A tool may create the Secret again."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.delete(SECRET, CREDENTIALS)
        await place.condition("Registered", "CredentialsMissing")
        await place.delete(WORKSPACE_PROXY, NAME)
        assert CREDENTIALS in await place.note("WorkspaceProxyNotDeregistered")
        await operator.wait_idle()
        assert (await place.get()).metadata.finalizers == [FINALIZER]
        if back:
            await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        else:
            await operator.later(minutes=5)
        await place.gone(WORKSPACE_PROXY, NAME)
        if back:
            assert await place.events("WorkspaceProxyLeaked") == []
        else:
            assert CREDENTIALS in await place.note("WorkspaceProxyLeaked")
    assert (NAME in place.proxies) is not back


async def test_retirement_waits_for_credentials(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.delete(SECRET, CREDENTIALS)
        await place.condition("Registered", "CredentialsMissing")
        await place.put_secret("given", token="other:token")
        await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="http://x")
        await place.condition("Registered", "NotManaged")
        await place.roll_out()
        assert CREDENTIALS in await place.note("WorkspaceProxyNotDeregistered")
        await operator.wait_idle()
        assert [each.proxy_name for each in (await place.get()).status.retiring_proxies] == [NAME]
        assert await place.events("WorkspaceProxyLeaked") == []
        await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        await operator.later(seconds=31)
        assert (await place.get()).status.retiring_proxies == []
    assert place.proxies == {}


@pytest.mark.parametrize("way", ["bootstrap", "controlPlaneRef"])
async def test_status_without_a_target_uses_the_spec(place: ProxyNamespace, way: str) -> None:
    """The Go operator does not record the target; the object may be deleted before the first reconcile."""
    await place.make_plane()
    spec: dict[str, Any] = {way: {"name": PLANE} if way == "controlPlaneRef" else place.bootstrap}
    await place.make(**spec)
    ours = register(place.coderd.state, Proxy("ours", NAME, "Ours", "/x.png", "", "ok", place.clock()))
    await place.client.merge(WORKSPACE_PROXY, place.key, {"metadata": {"finalizers": [FINALIZER]}})
    status = {"registered": True, "proxyID": ours["proxy"]["id"]}
    await place.client.merge(WORKSPACE_PROXY, place.key, {"status": status}, "status")
    await place.delete(WORKSPACE_PROXY, NAME)
    async with place.operator():
        await place.gone(WORKSPACE_PROXY, NAME)
        assert await place.events("WorkspaceProxyLeaked") == []
    assert place.proxies == {}


async def test_proxy_left_at_a_deleted_control_plane_is_reported(place: ProxyNamespace) -> None:
    await place.make_plane()
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.ready(operator)
        await place.delete(CONTROL_PLANE, PLANE)
        await place.condition("Registered", "ControlPlaneMissing")
        await operator.wait_idle()
        asked = place.coderd.state.requests.total()
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
        await operator.wait_idle()
        assert place.coderd.state.requests.total() == asked
        assert NAME in await place.note("WorkspaceProxyLeaked")


async def test_terminating_control_plane_only_deregisters(place: ProxyNamespace) -> None:
    await place.make_plane()
    plane = Key(place.namespace, PLANE)
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.ready(operator)
        await place.client.merge(CONTROL_PLANE, plane, {"metadata": {"finalizers": ["test.example.com/hold"]}})
        await place.delete(CONTROL_PLANE, PLANE)
        await place.condition("Registered", "ControlPlaneMissing")
        await operator.wait_idle()
        asked = place.coderd.state.requests.total()
        await place.change(derpOnly=True)
        await place.condition("Registered", "ControlPlaneMissing")
        await operator.wait_idle()
        assert place.coderd.state.requests.total() == asked
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
        assert await place.events("WorkspaceProxyLeaked") == []
    assert place.proxies == {}


async def test_terminating_namespace_does_not_wait_for_coderd(place: ProxyNamespace) -> None:
    """There is only one attempt."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.set(failing=True)
        await place.client.delete(
            NAMESPACE, await place.client.get(NAMESPACE, Key("", place.namespace)), unchanged=False
        )
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.coderd.state.count("DELETE", ONE) == 1


async def test_terminating_namespace_with_a_running_coderd(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.client.delete(
            NAMESPACE, await place.client.get(NAMESPACE, Key("", place.namespace)), unchanged=False
        )
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}


@pytest.mark.usefixtures("crds", "operator_kubeconfig")
def test_namespaced_operator_can_read_its_namespace(cluster: ClusterAccess, namespace: str) -> None:
    """With a Role: it needs no cluster-wide permission to see that its namespace is terminating."""
    cluster.kubectl("apply", "--kustomize", RBAC / "namespaced", "--namespace", namespace)
    cluster.kubectl("create", "rolebinding", "it", "--role=coder-k8s", "--user=confined", "--namespace", namespace)
    assert namespace in cluster.kubectl("get", "namespace", namespace, "--as=confined", "--output=name")


async def test_a_proxy_is_not_retired_while_too_many_retire(place: ProxyNamespace) -> None:
    """The status has room for 16; the registration and the pods stay as they are until one is gone."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        known = (await place.get()).status
        others = [
            {"proxyID": str(UUID(int=number)), "proxyName": f"old-{number}", "coderURL": known.coder_url}
            | {"credentialsSecretRef": {"name": CREDENTIALS, "key": "token"}}
            for number in range(16)
        ]
        place.coderd.state.set(failing=True)
        await place.client.merge(
            WORKSPACE_PROXY, Key(place.namespace, NAME), {"status": {"retiringProxies": others}}, "status"
        )
        await place.put_secret("given", token="other:token")
        await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="http://x")
        held = await place.condition("Registered", "Pending", "Unknown")
        assert held.message.startswith("Waiting for one of 16 workspace proxies in status.retiringProxies")
        await operator.wait_idle()
        status = (await place.get()).status
        assert (status.proxy_id, len(status.retiring_proxies)) == (known.proxy_id, 16)
        assert await place.events("StatusRejected") == []
        place.coderd.state.set(failing=False)
        await operator.later(seconds=31)
        await operator.later(seconds=31)
        await place.condition("Registered", "NotManaged")


async def test_retiring_proxies_are_deregistered_too(place: ProxyNamespace) -> None:
    """Old pods still run when the object is deleted."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.put_secret("given", token="other:token")
        await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="http://x")
        await place.condition("Registered", "NotManaged")
        await operator.wait_idle()
        assert NAME in place.proxies
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}
