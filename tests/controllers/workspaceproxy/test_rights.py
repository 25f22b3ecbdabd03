"""coderd returns 404 to users who lack a permission: a listed proxy is not deleted."""

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.coderd_server import User
from tests.support.workspaceproxies import CREDENTIALS, FINALIZER, NAME, ONE, SECRET_NAME, ProxyNamespace


async def demote(place: ProxyNamespace) -> None:
    """Remove all roles of the user of the credentials, who can still list proxies."""
    await place.put_secret(CREDENTIALS, token=place.coderd.state.add_token(User("demoted")))


async def test_proxy_that_cannot_be_deleted_is_reported(place: ProxyNamespace) -> None:
    """coderd returns 404 to the deletion and still lists the proxy; the operator retries and finally reports it."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await demote(place)
        await operator.wait_idle()
        await place.delete(WORKSPACE_PROXY, NAME)
        failed = await place.note("WorkspaceProxyNotDeregistered")
        assert NAME in failed
        assert "the role Owner" in failed
        await operator.later(minutes=1)
        assert FINALIZER in (await place.get()).metadata.finalizers
        await operator.later(minutes=5)
        await place.gone(WORKSPACE_PROXY, NAME)
        assert "Coder does not permit it" in await place.note("WorkspaceProxyLeaked")
        assert await place.events("WorkspaceProxyDeregistered") == []
    assert NAME in place.proxies


async def test_role_that_is_granted_again_in_time(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await demote(place)
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.note("WorkspaceProxyNotDeregistered")
        await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        await operator.later(seconds=6)
        await place.gone(WORKSPACE_PROXY, NAME)
        assert await place.events("WorkspaceProxyLeaked") == []
    assert place.proxies == {}


async def test_retiring_proxy_that_cannot_be_deleted_is_reported_and_kept(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await demote(place)
        await place.put_secret("given", token="other:token")
        await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="http://x")
        await place.condition("Registered", "NotManaged")
        await operator.wait_idle()
        await place.roll_out()
        assert "the role Owner" in await place.note("WorkspaceProxyNotDeregistered")
        await operator.wait_idle()
        assert [each.proxy_name for each in (await place.get()).status.retiring_proxies] == [NAME]
        await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        await operator.later(seconds=31)
        assert (await place.get()).status.retiring_proxies == []
    assert place.proxies == {}


@pytest.mark.parametrize("change", ["names", "token"])
async def test_change_without_permission_names_the_role(place: ProxyNamespace, change: str) -> None:
    """coderd returns 404 to the change of a proxy that it lists."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await demote(place)
        await operator.wait_idle()
        if change == "names":
            await place.change(bootstrap={"displayName": "Down under"})
        else:
            await place.put_secret(SECRET_NAME, token="")
        condition = await place.condition("Registered", "Forbidden", "False")
        assert f"The user of the token in Secret {CREDENTIALS} cannot manage workspace proxies" in condition.message
        assert "the role Owner" in condition.message
        await place.condition("Stalled", "Forbidden", "True")
    assert place.coderd.state.count("PATCH", ONE) == 1


async def test_hidden_proxy_is_not_lost(place: ProxyNamespace) -> None:
    """The scope of a token may exclude proxies: then the list is empty, which proves nothing."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        token = await place.token()
        scoped = place.coderd.state.add_token(User("scoped", sees_itself=False))
        await place.put_secret(CREDENTIALS, token=scoped)
        await place.condition("Registered", "Forbidden", "False")
        await operator.wait_idle()
        found = await place.get()
        assert (found.status.proxy_id, found.status.registered) == (before.status.proxy_id, True)
        assert FINALIZER in found.metadata.finalizers
        await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        await place.condition("Registered", "Registered", "True")
    assert await place.token() == token == place.proxies[NAME].token
    assert place.changes() == 0


async def test_list_that_omits_a_taken_name(place: ProxyNamespace) -> None:
    """coderd has the name and does not list it: the condition reports it, and the operator retries."""
    await place.make("first", bootstrap={**place.bootstrap, "proxyName": NAME})
    async with place.operator() as operator:
        await place.condition("Registered", "Registered", "True", name="first")
        await operator.wait_idle()
        place.coderd.state.set(omits_proxies=True)
        await place.make()
        await place.condition("Registered", "NameTaken", "False")
        await operator.wait_idle()
        assert place.registrations() == 2
        proxy = await place.get()
        assert (proxy.status.proxy_name, proxy.metadata.finalizers) == ("", [])
        assert 20 < (operator.requeue_after() or 999) <= 30
    assert place.changes() == 0


async def test_recorded_proxy_that_is_not_listed_is_not_foreign(place: ProxyNamespace) -> None:
    """The message does not say to delete it in Coder: the user of the token cannot see it."""
    async with place.operator() as operator:
        await place.make()
        ours = (await place.ready(operator)).status.proxy_id
        place.coderd.state.set(omits_proxies=True)
        await operator.later(seconds=61)
        condition = await place.condition("Registered", "Forbidden", "False")
        assert f"workspace proxy {NAME} exists, but is not listed for this user" in condition.message
        assert "delete it in Coder" not in condition.message
        assert (await place.get()).status.proxy_id == ours
