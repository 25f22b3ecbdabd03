"""Ownership of proxies in coderd: which ones an object may record, change and delete."""

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
    """Annotate the object to adopt an existing proxy."""
    annotations = {"metadata": {"annotations": {"coder.com/adopt": "true"}}}
    await place.client.merge(WORKSPACE_PROXY, Key(place.namespace, name), annotations)


async def record_name(place: ProxyNamespace, name: str = NAME, **ago: float) -> None:
    """Write the status as after a crash between the record of the name and the response of coderd."""
    started = (place.clock() - timedelta(**ago)).isoformat()
    status: dict[str, Any] = {"proxyName": NAME, "registrationStarted": started, "coderURL": place.coderd.url}
    status["credentialsSecretRef"] = {"name": CREDENTIALS, "key": "token"}
    key = Key(place.namespace, name)
    await place.client.merge(WORKSPACE_PROXY, key, {"metadata": {"finalizers": [FINALIZER]}})
    await place.client.merge(WORKSPACE_PROXY, key, {"status": status}, "status")


@pytest.mark.parametrize("name", [NAME, NAME.title()])
async def test_name_of_a_foreign_proxy(place: ProxyNamespace, name: str) -> None:
    """Nothing is created or adopted, and the operator continues when the name is free."""
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


async def test_proxy_that_a_user_registered_again(place: ProxyNamespace) -> None:
    """Its ID is not the recorded one, so it is foreign, also when the object is deleted."""
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
async def test_annotation_adopts_a_proxy(place: ProxyNamespace, ours: str) -> None:
    """It keeps its ID and gets a new token, and is deregistered with the object."""
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


async def test_running_proxy_is_not_adopted(place: ProxyNamespace) -> None:
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
async def test_proxy_of_another_object_is_not_adopted(place: ProxyNamespace, asked: str) -> None:
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
        await place.condition("Ready", "AllReady", "True")
    assert await place.token() == token == place.proxies[NAME].token
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_two_objects_adopt_one_proxy_at_once(place: ProxyNamespace) -> None:
    """The older object gets it, and the other does not change it."""
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
async def test_recorded_name_does_not_prove_ownership_of_a_foreign_proxy(place: ProxyNamespace, evidence: str) -> None:
    """After a crash only the name is recorded; meanwhile a user registers a proxy of that name."""
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


async def test_recorded_name_identifies_the_registered_proxy(place: ProxyNamespace) -> None:
    await place.make()
    await record_name(place, seconds=1)
    place.proxies[NAME] = ours = replace(register_foreign_proxy(place.coderd.state), url="")
    async with place.operator() as operator:
        await place.ready(operator)
        assert (await place.get()).status.proxy_id == ours.id
        assert (await place.get()).status.registration_started is None
    assert (place.registrations(), await place.token()) == (0, place.proxies[NAME].token)


async def test_proxy_is_kept_by_its_recorded_id(place: ProxyNamespace) -> None:
    """Whatever name a user gave it."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        ours = place.proxies.pop(NAME)
        place.proxies["other"] = Registered(ours.id, "other", "X", "/x.png", ours.token, "ok", ours.created_at)
        await operator.later(seconds=61)
        await place.condition("Ready", "AllReady", "True")
        assert place.proxies[NAME].id == ours.id
    assert place.registrations() == 1


async def test_two_objects_that_want_one_name(place: ProxyNamespace) -> None:
    """The first one gets it, and the other reports the conflict."""
    place.coderd.state.set(latency=0.05)  # both see that the name is free before either registers it
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


async def test_name_without_an_id_deletes_no_foreign_proxy(place: ProxyNamespace) -> None:
    """The object is deleted before the result of its registration is known."""
    theirs = register_foreign_proxy(place.coderd.state)
    await place.make()
    await record_name(place, seconds=59)
    await place.delete(WORKSPACE_PROXY, NAME)
    async with place.operator():
        await place.gone(WORKSPACE_PROXY, NAME)
        assert "nothing proves that this object registered it" in await place.note("WorkspaceProxyLeaked")
    assert place.proxies == {NAME: theirs}
    assert place.coderd.state.count("DELETE", ONE) == 0
