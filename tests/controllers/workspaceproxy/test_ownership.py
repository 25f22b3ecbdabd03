"""Whose a proxy of coderd is: what an object may record, change and delete, and what it leaves alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.coderd_server.records import Proxy as Registered
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.workspaceproxies import (
    CREDENTIALS,
    FINALIZER,
    NAME,
    ONE,
    SECRET_NAME,
    ProxyNamespace,
    register_foreign_proxy,
)


async def adopt(place: ProxyNamespace, name: str = NAME) -> None:
    """Ask for what is in Coder already."""
    annotations = {"metadata": {"annotations": {"coder.com/adopt": "true"}}}
    await place.client.merge(WORKSPACE_PROXY, Key(place.namespace, name), annotations)


async def record_name(place: ProxyNamespace, name: str = NAME, **ago: float) -> None:
    """Let an object look as after a crash between the record of the name and the answer of Coder."""
    started = (place.clock() - timedelta(**ago)).isoformat()
    status: dict[str, Any] = {"proxyName": NAME, "registrationStarted": started, "coderURL": place.coderd.url}
    status["credentialsSecretRef"] = {"name": CREDENTIALS, "key": "token"}
    key = Key(place.namespace, name)
    await place.client.merge(WORKSPACE_PROXY, key, {"metadata": {"finalizers": [FINALIZER]}})
    await place.client.merge(WORKSPACE_PROXY, key, {"status": status}, "status")


@pytest.mark.parametrize("name", [NAME, NAME.title()])
async def test_a_name_that_somebody_else_has(place: ProxyNamespace, name: str) -> None:
    """Nothing is made, nothing is taken, and it goes on by itself when the name is free."""
    theirs = register_foreign_proxy(place.coderd.state, name)
    async with place.operator() as operator:
        await place.make()
        taken = await place.condition("Stalled", "NameTaken", "True")
        assert f"a proxy named {name} that this object did not register" in taken.message
        assert 'coder.com/adopt: "true"' in taken.message
        await operator.wait_idle()
        assert place.proxies == {NAME: theirs}
        assert await place.find(SECRET, SECRET_NAME) is None
        assert await place.find(DEPLOYMENT, f"wsproxy-{NAME}") is None
        assert (await place.get()).metadata.finalizers == []
        await place.note("NameTaken")
        place.coderd.state.delete_proxy(NAME)
        await operator.later(seconds=31)
        await place.ready(operator)
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_a_proxy_that_somebody_put_in_place_of_ours(place: ProxyNamespace) -> None:
    """Its ID is not the recorded one, so it is not ours; not when the object goes, either."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.delete_proxy(NAME)
        theirs = register_foreign_proxy(place.coderd.state)
        await operator.later(seconds=61)
        await place.condition("Registered", "NameTaken", "False")
        await place.condition("Stalled", "NameTaken", "True")
        await operator.later(seconds=61)
        assert place.proxies == {NAME: theirs}
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {NAME: theirs}


@pytest.mark.parametrize("ours", ["never registered", "replaced"])
async def test_a_proxy_is_taken_over_where_that_is_asked_for(place: ProxyNamespace, ours: str) -> None:
    """It keeps its ID and gets a new token, and it is deregistered like any other."""
    async with place.operator() as operator:
        await place.make()
        if ours == "replaced":
            await place.ready(operator)
            place.coderd.state.delete_proxy(NAME)
        theirs = register_foreign_proxy(place.coderd.state)
        await operator.later(seconds=61)
        await place.condition("Stalled", "NameTaken", "True")
        place.coderd.state.set_proxy(NAME, "unreachable")
        await adopt(place)
        proxy = await place.ready(operator)
        assert (proxy.status.registered, proxy.status.proxy_id) == (True, theirs.id)
        assert await place.token() == place.proxies[NAME].token != theirs.token
        assert place.coderd.url in await place.note("WorkspaceProxyAdopted")
        await operator.later(seconds=61)
        assert place.changes() == 1
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}


async def test_a_proxy_that_runs_is_not_taken_over(place: ProxyNamespace) -> None:
    """A new token would disconnect its pods."""
    theirs = register_foreign_proxy(place.coderd.state)
    async with place.operator() as operator:
        await place.make()
        await adopt(place)
        taken = await place.condition("Stalled", "NameTaken", "True")
        assert "that is running" in taken.message
        assert "stop it and take it over" in taken.message
        await operator.later(seconds=61)
        assert place.proxies == {NAME: theirs}
        place.coderd.state.set_proxy(NAME, "unreachable")
        await operator.later(seconds=31)
        await place.condition("Registered", "Registered", "True")
        assert (await place.get()).status.proxy_id == theirs.id


@pytest.mark.parametrize("asked", ["by the newer one", "by both"])
async def test_what_another_object_has_cannot_be_taken_over(place: ProxyNamespace, asked: str) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        token = await place.token()
        if asked == "by both":
            await adopt(place)
        await place.make("other", bootstrap={**place.bootstrap, "proxyName": NAME})
        await adopt(place, "other")
        taken = await place.condition("Registered", "NameTaken", "False", name="other")
        assert "another CoderWorkspaceProxy claims" in taken.message
        await operator.later(seconds=61)
        await place.delete(WORKSPACE_PROXY, "other")
        await place.gone(WORKSPACE_PROXY, "other")
        await operator.later(seconds=61)
        await place.condition("Ready", "AllPartsReady", "True")
    assert await place.token() == token == place.proxies[NAME].token
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_two_objects_that_ask_for_one_proxy_at_once(place: ProxyNamespace) -> None:
    """The older one gets it, and nothing happens to it by the other."""
    theirs = register_foreign_proxy(place.coderd.state)
    place.coderd.state.set_proxy(NAME, "unreachable")
    for name in ("older", "younger"):
        await place.make(name, bootstrap={**place.bootstrap, "proxyName": NAME})
        await adopt(place, name)
    [first, second] = sorted(
        [await place.get(name) for name in ("older", "younger")],
        key=lambda each: (str(each.metadata.creation_timestamp), each.metadata.uid),
    )
    place.coderd.state.set(latency=0.05)
    async with place.operator() as operator:
        await place.condition("Registered", "Registered", "True", name=first.metadata.name)
        await place.condition("Registered", "NameTaken", "False", name=second.metadata.name)
        await operator.wait_idle()
    assert (await place.get(first.metadata.name)).status.proxy_id == theirs.id
    assert (await place.get(second.metadata.name)).status.proxy_id == ""
    assert place.changes() == 1


@pytest.mark.parametrize("evidence", ["created before", "in use", "of another object"])
async def test_a_recorded_name_is_no_right_to_the_proxy_of_somebody_else(place: ProxyNamespace, evidence: str) -> None:
    """After a crash nothing but the name is recorded; meanwhile somebody else has it."""
    theirs = register_foreign_proxy(place.coderd.state)
    if evidence == "created before":
        place.proxies[NAME] = theirs = replace(theirs, url="")
    await place.make()
    await record_name(place, seconds=-59 if evidence == "created before" else 59)
    if evidence == "of another object":
        place.proxies[NAME] = theirs = replace(theirs, url="")
        await place.make("other", bootstrap={**place.bootstrap, "proxyName": NAME})
        owned = {"registered": True, "proxyID": theirs.id, "proxyName": NAME, "coderURL": place.coderd.url}
        await place.client.merge(WORKSPACE_PROXY, Key(place.namespace, "other"), {"status": owned}, "status")
        await place.client.merge(
            WORKSPACE_PROXY, Key(place.namespace, "other"), {"metadata": {"annotations": {"coder.com/paused": "true"}}}
        )
    async with place.operator() as operator:
        await place.condition("Registered", "NameTaken", "False")
        await operator.wait_idle()
        proxy = await place.get()
        assert (proxy.status.proxy_name, proxy.status.proxy_id, proxy.metadata.finalizers) == ("", "", [])
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {NAME: theirs}


async def test_a_recorded_name_finds_the_proxy_that_was_registered_by_it(place: ProxyNamespace) -> None:
    await place.make()
    await record_name(place, seconds=1)
    place.proxies[NAME] = ours = replace(register_foreign_proxy(place.coderd.state), url="")
    async with place.operator() as operator:
        await place.ready(operator)
        assert (await place.get()).status.proxy_id == ours.id
        assert (await place.get()).status.registration_started is None
    assert (place.registrations(), await place.token()) == (0, place.proxies[NAME].token)


async def test_our_own_proxy_is_adopted_by_its_recorded_id(place: ProxyNamespace) -> None:
    """Under whatever name somebody gave it."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        ours = place.proxies.pop(NAME)
        place.proxies["other"] = Registered(ours.id, "other", "X", "/x.png", ours.token, "ok", ours.created_at)
        await operator.later(seconds=61)
        await place.condition("Ready", "AllPartsReady", "True")
        assert place.proxies[NAME].id == ours.id
    assert place.registrations() == 1


async def test_two_objects_that_want_one_name(place: ProxyNamespace) -> None:
    """One of them gets it, whichever comes first, and the other says so."""
    place.coderd.state.set(latency=0.05)  # both have seen that the name is free before either takes it
    async with place.operator() as operator:
        spec = {**place.bootstrap, "proxyName": "contested"}
        for name in ("first", "second"):
            await place.make(name, bootstrap=spec)

        async def decided() -> bool:
            found = [(await place.conditions(name)).get("Registered", ("", ""))[1] for name in ("first", "second")]
            return sorted(found) == ["NameTaken", "Registered"]

        await eventually(decided)
        await operator.wait_idle()
        winner = [name for name in ("first", "second") if (await place.get(name)).status.registered]
        assert len(winner) == 1
        assert (await place.get(*winner)).status.proxy_id == place.proxies["contested"].id
        [loser] = {"first", "second"} - {*winner}
        assert (await place.get(loser)).status.proxy_name == ""
        await place.delete(WORKSPACE_PROXY, loser)
        await place.gone(WORKSPACE_PROXY, loser)
        assert "contested" in place.proxies
    assert place.changes() == 0


async def test_a_name_without_an_id_deletes_nothing_of_somebody_else(place: ProxyNamespace) -> None:
    """An object that goes before its registration was found out about."""
    theirs = register_foreign_proxy(place.coderd.state)
    await place.make()
    await record_name(place, seconds=59)
    await place.delete(WORKSPACE_PROXY, NAME)
    async with place.operator():
        await place.gone(WORKSPACE_PROXY, NAME)
        assert "not certain" in await place.note("WorkspaceProxyLeaked")
    assert place.proxies == {NAME: theirs}
    assert place.coderd.state.count("DELETE", ONE) == 0
