"""The client against a real coderd without a license, if one is configured."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import SystemRandom

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.access_db import USERNAME, delete_stale_tokens, ensure_token, revoke, token_name
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections

pytestmark = pytest.mark.real_coderd

NAME = token_name("tests", "real-coderd")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client with a token that is created and revoked by SQL."""
    url = os.environ["CODERD_DATABASE_URL"]
    grant = await ensure_token(url, NAME, "", now=datetime.now(UTC), rng=SystemRandom())
    await delete_stale_tokens(url, NAME, grant.token)
    async with Connections() as connections:
        client = Client(connections, os.environ["CODERD_URL"], grant.token)
        yield client
        await revoke(url, NAME)
        with pytest.raises(errors.Unauthorized):
            await client.me()


async def test_the_operator_is_an_owner(client: Client) -> None:
    user = await client.me()
    assert (user.username, user.status, [role.name for role in user.roles]) == (USERNAME, "active", ["owner"])


async def test_read_requests(client: Client) -> None:
    assert (await client.build_info()).version.startswith("v")
    assert not (await client.entitlements()).has_license
    assert isinstance(await client.licenses(), list)
    assert (await client.organization("default")).is_default
    assert isinstance(await client.provisioner_daemons("default"), list)


async def test_requests_that_need_a_license(client: Client) -> None:
    for call in (
        client.provisioner_keys("default"),
        client.create_provisioner_key("default", "k", {}),
        client.workspace_proxies(),
        client.create_workspace_proxy("p", "P", "/icon.svg"),
    ):
        with pytest.raises(errors.NotLicensed):
            await call
    with pytest.raises(errors.Invalid):
        await client.add_license("not a license")
    assert await client.look_up_provisioner_key("x" * 43) is None
