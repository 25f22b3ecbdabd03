"""A change of the coderd in the spec: pods keep running at the old one until the new one has registered them."""

from collections.abc import AsyncIterator

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube.kinds import SECRET
from tests.support import eventually
from tests.support.workspaceproxies import (
    NAME,
    PLANE,
    ProxyNamespace,
    environment,
    leaked_tokens,
    register_foreign_proxy,
)

PRIMARY = "CODER_PRIMARY_ACCESS_URL"


@pytest.fixture
async def other(place: ProxyNamespace) -> AsyncIterator[CoderdServer]:
    """Another coderd, with credentials for it in a Secret."""
    async with CoderdServer(now=place.clock) as made:
        await place.put_secret("other", token=made.state.token)
        yield made


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        ("down", "CoderUnavailable"),
        ("name", "NameTaken"),
        ("credentials", "CredentialsMissing"),
        ("license", "NotEntitled"),
    ],
)
async def test_pods_stay_where_their_token_is_valid(
    place: ProxyNamespace, other: CoderdServer, obstacle: str, reason: str
) -> None:
    if obstacle != "license":
        other.state.install_license()
    match obstacle:
        case "down":
            other.state.set(failing=True)
        case "name":
            register_foreign_proxy(other.state)
        case "credentials":
            await place.delete(SECRET, "other")
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = await place.deployment()
        assert environment(before)[PRIMARY] == place.coderd.url
        token = await place.token()
        given = {"coderURL": other.url, "credentialsSecretRef": {"name": "other"}}
        await place.change(bootstrap=given, replicas=2)
        await place.condition("Registered", reason)
        await place.condition("TokenSecretReady", "Pending", "False")
        await operator.later(seconds=121)
        assert await place.deployment() == before
        assert await place.token() == token == place.proxies[NAME].token

        other.state.set(failing=False)
        other.state.install_license()
        if obstacle == "name":
            other.state.delete_proxy(NAME)
        await place.put_secret("other", token=other.state.token)
        await operator.later(seconds=121)
        await place.condition("Registered", "Registered", "True")
        await operator.wait_idle()
        assert environment(await place.deployment())[PRIMARY] == other.url
        assert await place.token() == other.state.proxies[NAME].token
        await place.roll_out(ready=2)
        await eventually(lambda: not place.proxies)
    assert not leaked_tokens(place.coderd, other)


async def test_pods_stay_until_there_is_access_to_the_control_plane(place: ProxyNamespace) -> None:
    await place.make_plane(operatorAccessReady=False)
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = await place.deployment()
        await place.change(bootstrap=None, controlPlaneRef={"name": PLANE})
        await place.condition("Registered", "OperatorAccessNotReady", "False")
        await operator.wait_idle()
        assert await place.deployment() == before
        await place.delete(CONTROL_PLANE, PLANE)
        await place.condition("Registered", "ControlPlaneMissing", "False")
        await operator.wait_idle()
        assert await place.deployment() == before
