"""A token that is created by SQL works in coderd."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import SystemRandom

import pytest

from coder_k8s.coderd.access_db import USERNAME, ensure_token, revoke, token_name
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.errors import Unauthorized, Unavailable
from coder_k8s.dev.coderd_server import CoderdServer
from tests.coderd.conftest import CoderdDatabase

NAME = token_name("team", "coder")


@pytest.fixture
async def coderd(database: CoderdDatabase, version: str) -> AsyncIterator[CoderdServer]:
    """The coderd simulator on that database."""
    async with CoderdServer(version, database_url=database.url) as server:
        yield server


async def test_the_token_works_until_it_is_revoked(coderd: CoderdServer, database: CoderdDatabase) -> None:
    grant = await ensure_token(database.url, NAME, "", now=datetime.now(UTC), rng=SystemRandom())
    async with Connections() as connections:
        client = Client(connections, coderd.url, grant.token)
        user = await client.me()
        assert (user.username, user.login_type, [role.name for role in user.roles]) == (USERNAME, "none", ["owner"])
        await client.provisioner_daemons("default")
        await revoke(database.url, NAME)
        with pytest.raises(Unauthorized):
            await client.me()


async def test_a_token_can_revoke_itself(coderd: CoderdServer, database: CoderdDatabase) -> None:
    grant = await ensure_token(database.url, NAME, "", now=datetime.now(UTC), rng=SystemRandom())
    async with Connections() as connections:
        client = Client(connections, coderd.url, grant.token)
        await client.revoke_own_token()
        for call in (client.me, client.revoke_own_token):
            with pytest.raises(Unauthorized):
                await call()
    assert await database.server.fetch("SELECT id FROM api_keys", database.name) == []


async def test_a_database_outage_keeps_the_token_valid(coderd: CoderdServer, database: CoderdDatabase) -> None:
    grant = await ensure_token(database.url, NAME, "", now=datetime.now(UTC), rng=SystemRandom())
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    async with Connections() as connections:
        client = Client(connections, coderd.url, grant.token)
        with pytest.raises(Unavailable):
            await client.me()
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await client.me()
