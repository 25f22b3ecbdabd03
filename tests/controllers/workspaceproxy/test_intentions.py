"""A recorded name proves ownership only of a proxy that the operator just requested, not of one of a user."""

from dataclasses import replace

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.dev.coderd_server.records import Proxy as Registered
from coder_k8s.kube.kinds import SECRET
from tests.support.operators import Operator
from tests.support.workspaceproxies import (
    CREDENTIALS,
    MEMBER,
    NAME,
    SECRET_NAME,
    ProxyNamespace,
    is_quota_exceeded,
    register_foreign_proxy,
    set_quota,
)


def user_registers(place: ProxyNamespace) -> Registered:
    """Register a proxy as a user, without pods."""
    place.proxies[NAME] = made = replace(register_foreign_proxy(place.coderd.state), url="", status="unregistered")
    return made


async def fail_to_register(place: ProxyNamespace, operator: Operator, times: int) -> None:
    """Create an object whose requests get no response and are not executed."""
    place.coderd.state.set(unanswered="POST")
    await place.make()
    for number in range(times):
        if number:
            await operator.later(seconds=121)
        await place.condition("Registered", "CoderUnavailable", "Unknown")
        await operator.wait_idle()
        assert place.proxies.pop(NAME)


async def assert_left_alone(place: ProxyNamespace, operator: Operator, theirs: Registered) -> None:
    """Assert that neither a reconcile nor the deletion of the object changes the proxy of the user."""
    await operator.later(seconds=121)
    await place.condition("Registered", "NameTaken", "False")
    assert place.proxies == {NAME: theirs}
    await place.delete(WORKSPACE_PROXY, NAME)
    await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {NAME: theirs}


@pytest.mark.parametrize("deleted", [False, True], ids=["quota is raised", "object is deleted"])
async def test_without_a_secret_no_name_is_recorded(place: ProxyNamespace, deleted: bool) -> None:
    await set_quota(place, used=1)
    async with place.operator() as operator:
        await place.make()
        assert await is_quota_exceeded(place)
        await operator.wait_idle()
        proxy = await place.get()
        assert (proxy.status.proxy_name, proxy.status.registration_started, proxy.metadata.finalizers) == ("", None, [])
        theirs = user_registers(place)
        if not deleted:
            await set_quota(place, used=0)
            await assert_left_alone(place, operator, theirs)
            return
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {NAME: theirs}


async def test_record_is_removed_when_the_secret_is_rejected_later(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await fail_to_register(place, operator, 1)
        assert (await place.get()).status.proxy_name == NAME
        await set_quota(place, used=1)
        await place.delete(SECRET, SECRET_NAME)
        await operator.later(seconds=121)
        assert await is_quota_exceeded(place)
        assert (await place.get()).status.proxy_name == ""


async def test_failed_requests_do_not_prove_ownership_of_a_later_proxy(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await fail_to_register(place, operator, 3)
        proxy = await place.get()
        assert proxy.status.registration_started == place.clock(), "it is recorded before every request"
        place.clock.time = place.clock.time.replace(year=place.clock.time.year + 1)
        await assert_left_alone(place, operator, user_registers(place))


async def test_lost_response_after_failed_requests(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await fail_to_register(place, operator, 2)
        await operator.later(seconds=121)
        ours = place.proxies[NAME].id
        await operator.later(seconds=121)
        await place.ready(operator)
        assert (await place.get()).status.proxy_id == place.proxies[NAME].id == ours


async def test_rejected_request_does_not_prove_ownership_of_a_later_proxy(place: ProxyNamespace) -> None:
    """Even if earlier requests got no response."""
    async with place.operator() as operator:
        await fail_to_register(place, operator, 1)
        place.coderd.state.set(unanswered="")
        await place.put_secret(CREDENTIALS, token=place.coderd.state.add_token(MEMBER))
        await place.condition("Registered", "Forbidden", "False")
        await operator.wait_idle()
        assert (await place.get()).status.proxy_name == ""
        theirs = user_registers(place)
        await place.put_secret(CREDENTIALS, token=place.coderd.state.token)
        await assert_left_alone(place, operator, theirs)
