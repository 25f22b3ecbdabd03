"""What a user may not do, coderd hides: a 404 is not the end of a proxy that the list shows."""

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.coderd_server import User
from tests.support.workspaceproxies import CREDENTIALS, FINALIZER, NAME, ONE, SECRET_NAME, ProxyNamespace


async def demote(place: ProxyNamespace) -> None:
    """Let the user of the credentials have no role: it may still read proxies, as every user may."""
    await place.put_secret(CREDENTIALS, token=place.coderd.state.add_token(User("demoted")))


async def test_a_proxy_that_is_hidden_from_its_user_is_not_gone(place: ProxyNamespace) -> None:
    """coderd answers 404 to the deletion, and lists the proxy; that is tried again, and then named by an event."""
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
        assert "Coder still lists it" in await place.note("WorkspaceProxyLeaked")
        assert await place.events("WorkspaceProxyDeregistered") == []
    assert NAME in place.proxies


async def test_a_user_who_gets_the_role_back_in_time(place: ProxyNamespace) -> None:
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


async def test_a_retiring_proxy_that_cannot_be_deleted_is_reported_and_kept(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await demote(place)
        await place.put_secret("given", token="somebody:else")
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
async def test_a_change_without_the_right_says_which_role_is_missing(place: ProxyNamespace, change: str) -> None:
    """coderd answers 404 to the change of a proxy that it lists."""
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
        assert f"The user of the token in Secret {CREDENTIALS} may not manage workspace proxies" in condition.message
        assert "the role Owner" in condition.message
        await place.condition("Stalled", "Forbidden", "True")
    assert place.coderd.state.count("PATCH", ONE) == 1


async def test_a_user_who_does_not_see_the_proxy_does_not_lose_it(place: ProxyNamespace) -> None:
    """The scope of a token may exclude proxies: the list is empty then, and that proves nothing."""
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


async def test_a_list_that_omits_a_name_that_is_taken(place: ProxyNamespace) -> None:
    """coderd knows the name and does not list it: that is reported, and asked for steadily."""
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


async def test_a_recorded_proxy_that_is_not_listed_is_not_foreign(place: ProxyNamespace) -> None:
    """It is not to be deleted in Coder: the user of the token does not see it."""
    async with place.operator() as operator:
        await place.make()
        ours = (await place.ready(operator)).status.proxy_id
        place.coderd.state.set(omits_proxies=True)
        await operator.later(seconds=61)
        condition = await place.condition("Registered", "Forbidden", "False")
        assert f"workspace proxy {NAME} exists, but is not listed for this user" in condition.message
        assert "delete it in Coder" not in condition.message
        assert (await place.get()).status.proxy_id == ours
