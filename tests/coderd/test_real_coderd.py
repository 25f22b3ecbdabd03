"""The client against a real coderd without a license."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from random import SystemRandom

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.access_db import USERNAME, delete_stale_tokens, ensure_token, revoke, token_name
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.dev.coder_build import AGPL, LATEST
from tests.support.real_coderd import RealCoderd

NAME = token_name("tests", "real-coderd")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=[pytest.param(version, marks=pytest.mark.coder(version)) for version in (LATEST, AGPL)])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def coderd(version: str, real_coderd: Callable[[str], RealCoderd]) -> RealCoderd:
    return real_coderd(version)


@pytest.fixture
async def client(coderd: RealCoderd) -> AsyncIterator[Client]:
    """A client with a token that is created and revoked by SQL."""
    url = coderd.database_url
    grant = await ensure_token(url, NAME, "", now=datetime.now(UTC), rng=SystemRandom())
    await delete_stale_tokens(url, NAME, grant.token)
    async with Connections() as connections:
        client = Client(connections, coderd.url, grant.token)
        yield client
        await revoke(url, NAME)
        with pytest.raises(errors.Unauthorized):
            await client.me()


async def test_the_operator_is_an_owner(client: Client) -> None:
    user = await client.me()
    assert (user.username, user.status, [role.name for role in user.roles]) == (USERNAME, "active", ["owner"])


async def test_read_requests(client: Client, version: str) -> None:
    assert (await client.build_info()).version == f"v{version}"
    assert [each.is_default for each in await client.organizations()] == [True]
    assert (await client.organization("default")).is_default
    assert isinstance(await client.provisioner_daemons("default"), list)
    assert isinstance(await client.provisioner_jobs("default"), list)


async def test_requests_that_need_a_license(client: Client, version: str) -> None:
    rejection = errors.NotSupported if version == AGPL else errors.NotLicensed
    for call in (
        client.provisioner_keys("default"),
        client.create_provisioner_key("default", "k", {}),
        client.workspace_proxies(),
        client.create_workspace_proxy("p", "P", "/icon.svg"),
    ):
        with pytest.raises(rejection):
            await call


async def test_licenses(client: Client, version: str) -> None:
    if version == AGPL:
        for call in (client.entitlements(), client.licenses(), client.add_license("x")):
            with pytest.raises(errors.NotSupported):
                await call
        return
    assert not (await client.entitlements()).has_license
    assert await client.licenses() == []
    with pytest.raises(errors.Invalid):
        await client.add_license("not a license")
    assert await client.look_up_provisioner_key("x" * 43) is None
