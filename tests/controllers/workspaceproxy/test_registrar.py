"""Registrations at the simulator: updated, repeated, adopted, rejected."""

from pathlib import Path

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.coderd_server.records import Proxy as Registered
from coder_k8s.kube.config import load
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.kstatus import kstatus
from tests.support.proxy import Proxy
from tests.support.workspaceproxies import NAME, PROXIES, SECRET_NAME, ProxyNamespace


async def test_name_display_name_and_icon_follow_the_spec(place: ProxyNamespace) -> None:
    """Drift in coderd is repaired; fields that the spec does not set keep their values. The token does not change."""
    async with place.operator() as operator:
        await place.make(bootstrap={**place.bootstrap, "displayName": "Sydney"})
        await place.ready(operator)
        token = await place.token()
        chosen = place.proxies[NAME]
        place.proxies[NAME] = Registered(
            chosen.id, NAME, "edited by hand", "/chosen.png", chosen.token, "ok", chosen.created_at
        )
        await operator.later(seconds=61)
        assert (place.proxies[NAME].display_name, place.proxies[NAME].icon) == ("Sydney", "/chosen.png")
        await place.change(bootstrap={"displayName": "Down under", "icon": "/2.png", "proxyName": "Oceania"})
        await place.condition("Registered", "Registered", "True")
        renamed = place.proxies["oceania"]
        assert (renamed.id, renamed.name) == (chosen.id, "Oceania")
        assert (renamed.display_name, renamed.icon) == ("Down under", "/2.png")
        updated = "Updated name, display name and icon of workspace proxy "
        assert (await place.note("WorkspaceProxyUpdated")).startswith(updated)
        assert (await place.get()).status.proxy_name == "Oceania"
    assert await place.token() == token == renamed.token
    assert place.registrations() == 1


@pytest.mark.parametrize("harm", ["deleted", "emptied", "garbage", "of another proxy"])
async def test_a_token_is_regenerated_once_when_the_secret_lost_it(place: ProxyNamespace, harm: str) -> None:
    """The pods restart, because the old token is invalid."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        old, generation = await place.token(), (await place.deployment()).metadata.generation
        if harm == "deleted":
            await place.delete(SECRET, SECRET_NAME)
        else:
            value = {"emptied": "", "garbage": "garbage", "of another proxy": f"other:{old.partition(':')[2]}"}[harm]
            await place.put_secret(SECRET_NAME, token=value)
        note = f"Regenerated the token of workspace proxy {NAME}: Secret {SECRET_NAME} did not have it"
        assert await place.note("WorkspaceProxyTokenRegenerated") == note
        await operator.wait_idle()
        assert await place.token() == place.proxies[NAME].token != old
        assert (await place.deployment()).metadata.generation == generation + 1
        await place.ready(operator)
        await operator.later(seconds=61)
        labels = f'cause="Regenerated",name="{NAME}",namespace="{place.namespace}"'
        assert f"coder_k8s_workspace_proxy_tokens_total{{{labels}}} 1.0" in operator.metrics()
    assert (place.registrations(), place.changes()) == (1, 1)


async def test_restored_token_is_not_regenerated(place: ProxyNamespace, tmp_path: Path) -> None:
    async with Proxy(load(place.kubeconfig)) as between:
        place.kubeconfig = between.kubeconfig(place.kubeconfig, tmp_path / "between")
        async with place.operator() as operator:
            await place.make()
            await place.ready(operator)
            token, look = await place.token(), f"GET {WORKSPACE_PROXY.path(place.key)}"
            between.hold = lambda request: request == look
            await place.put_secret(SECRET_NAME, token="")
            await eventually(lambda: look in between.requests)
            await place.put_secret(SECRET_NAME, token=token)
            live, seen = await place.find(SECRET, SECRET_NAME), operator.informers[SECRET]
            await eventually(lambda: seen.get(live.key) == live)
            between.release()
            await operator.wait_idle()
    assert await place.token() == token == place.proxies[NAME].token
    assert place.changes() == 0


async def test_token_is_kept(place: ProxyNamespace) -> None:
    """After a restart, without labels on the Secret, and with a lost status."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
    token = await place.token()
    stripped = {"metadata": {"labels": None}}
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), stripped)
    lost = dict.fromkeys(("registered", "proxyID", "proxyName", "coderURL", "proxyTokenSecretRef", "conditions"))
    await place.client.merge(WORKSPACE_PROXY, place.key, {"status": lost}, "status")
    async with place.operator() as operator:
        await place.ready(operator)
        proxy = await place.get()
        assert (proxy.status.registered, proxy.status.proxy_id) == (True, place.proxies[NAME].id)
    assert await place.token() == token == place.proxies[NAME].token
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_deleted_proxy_is_registered_again(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        old = (await place.ready(operator)).status.proxy_id
        generation = (await place.deployment()).metadata.generation
        place.coderd.state.delete_proxy(NAME)
        await operator.later(seconds=61)
        proxy = await place.ready(operator)
        assert proxy.status.proxy_id == place.proxies[NAME].id != old
        assert await place.token() == place.proxies[NAME].token
        assert (await place.deployment()).metadata.generation == generation + 1
    assert (place.registrations(), place.changes()) == (2, 0)


async def test_secret_of_another_owner_is_not_used(place: ProxyNamespace) -> None:
    """Nothing is registered before its token can be stored."""
    await place.put_secret(SECRET_NAME, token="theirs")
    async with place.operator() as operator:
        await place.make()
        await place.condition("TokenSecretReady", "NameTaken", "False")
        await place.condition("Stalled", "NameTaken", "True")
        assert place.coderd.state.requests.total() == 0
        assert await place.token() == "theirs"
        await place.delete(SECRET, SECRET_NAME)
        await place.ready(operator)


REPORTED = [
    ("unhealthy", "ProxyUnhealthy"),
    ("unreachable", "ProxyUnreachable"),
    ("nonsense", "HealthUnknown"),
]


async def test_health_as_coderd_sees_it(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        state = place.coderd.state
        for word, reason in REPORTED:
            state.set_proxy(NAME, word, errors=["no DERP mesh"], warnings=["slow"])
            await operator.later(seconds=61)
            condition = await place.condition("ProxyHealthy", reason)
            assert "no DERP mesh; warning: slow" in condition.message
            await place.condition("Ready", reason)
            assert (operator.requeue_after() or 999) <= 10
        assert "no DERP mesh" in await place.note("ProxyUnhealthy")
        assert (
            f'coder_k8s_workspace_proxy_healthy{{name="{NAME}",namespace="{place.namespace}"}} 0.0'
            in operator.metrics()
        )
        state.set_proxy(NAME, "ok", warnings=["slow"])
        await operator.later(seconds=11)
        condition = await place.condition("ProxyHealthy", "ProxyHealthy", "True")
        assert condition.message == "Coder reaches the proxy, which runs v2.36.1; warning: slow"
        await place.condition("Ready", "AllReady", "True")
        assert (
            f'coder_k8s_workspace_proxy_healthy{{name="{NAME}",namespace="{place.namespace}"}} 1.0'
            in operator.metrics()
        )
        await place.change(replicas=0)
        await place.condition("ProxyHealthy", "ScaledToZero", "False")
        assert f'coder_k8s_workspace_proxy_healthy{{name="{NAME}"' not in operator.metrics()  # an alert would fire
        await place.condition("Ready", "RolloutInProgress", "False")
        await place.roll_out(ready=0)
        await place.condition("Ready", "ScaledToZero", "True")
        assert (await place.get()).status.phase == "Pending"
        assert kstatus(await place.client.get_manifest(WORKSPACE_PROXY, place.key)) == "Current"


async def test_requests_to_coderd_are_bounded(place: ProxyNamespace) -> None:
    """However often the pods change."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = place.coderd.state.count("GET", PROXIES)
        for number in range(5):
            await place.roll_out(ready=number % 2)
            await place.condition("DeploymentReady", "MinimumReplicasReady" if number % 2 else "NoReplicasReady")
        await operator.wait_idle()
    assert place.coderd.state.count("GET", PROXIES) == before


async def test_paused(place: ProxyNamespace) -> None:
    """No writes and no requests to coderd, not even for a deletion."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.client.merge(
            WORKSPACE_PROXY, place.key, {"metadata": {"annotations": {"coder.com/paused": "true"}}}
        )
        await place.condition("Ready", "Paused", "Unknown")
        asked = place.coderd.state.requests.total()
        await place.change(replicas=3)
        await place.delete(WORKSPACE_PROXY, NAME)
        await operator.later(seconds=61)
        assert place.coderd.state.requests.total() == asked
        assert (await place.deployment()).manifest["spec"]["replicas"] == 1
        await place.client.merge(WORKSPACE_PROXY, place.key, {"metadata": {"annotations": {"coder.com/paused": None}}})
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}
