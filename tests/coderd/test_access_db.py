"""The operator's user and token in coderd's tables."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from random import SystemRandom
from typing import Any

import pytest

from coder_k8s.coderd.access_db import (
    EMAIL,
    LIFETIME,
    USERNAME,
    Grant,
    delete_stale_tokens,
    ensure_token,
    revoke,
    token_name,
)
from coder_k8s.coderd.errors import DatabaseUnreachable, MigrationsPending, SchemaUnsupported, UsernameTaken
from tests.coderd.conftest import CoderdDatabase

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAME = token_name("team-a", "coder")
OTHER = token_name("team-b", "coder")


async def ensure(database: CoderdDatabase, current: str = "", name: str = NAME, now: datetime = NOW) -> Grant:
    return await ensure_token(database.url, name, current, now=now, rng=SystemRandom())


async def versions(database: CoderdDatabase) -> list[dict[str, Any]]:
    """Return every row with the transaction that last wrote it."""
    return [
        *await rows(database, "SELECT *, xmin::text, ctid::text FROM users"),
        *await rows(database, "SELECT *, xmin::text, ctid::text FROM api_keys"),
    ]


async def rows(database: CoderdDatabase, query: str) -> list[dict[str, Any]]:
    return [dict(row) for row in await database.server.fetch(query, database.name)]


async def users(database: CoderdDatabase) -> list[dict[str, Any]]:
    return await rows(database, "SELECT * FROM users ORDER BY created_at, id")


async def tokens(database: CoderdDatabase) -> dict[str, str]:
    """Return names and IDs of all tokens."""
    return {row["token_name"]: row["id"] for row in await rows(database, "SELECT token_name, id FROM api_keys")}


async def add_user(database: CoderdDatabase, username: str, email: str) -> None:
    await database.server.execute(
        """
        INSERT INTO users (id, email, username, hashed_password, created_at, updated_at, status, login_type)
        VALUES (gen_random_uuid(), $1, $2, 'hash', now(), now(), 'active', 'password')
        """,
        database.name,
        email,
        username,
    )


def test_token_names_are_stable_and_differ_per_control_plane() -> None:
    assert token_name("", "") == "coder-k8s-operator-af63bd4c8601b7df"  # FNV-1a 64 of one zero byte
    assert len({token_name("a", "bc"), token_name("ab", "c"), token_name("a", "b")}) == 3


async def test_a_new_database_gets_a_system_user_with_the_owner_role(database: CoderdDatabase) -> None:
    grant = await ensure(database)

    [user] = await users(database)
    assert (user["username"], user["email"], user["status"]) == (USERNAME, EMAIL, "active")
    assert (user["is_system"], user["login_type"], user["rbac_roles"]) == (True, "none", ["owner"])
    identifier, _, secret = grant.token.partition("-")
    [key] = await rows(database, "SELECT * FROM api_keys")
    assert (len(identifier), len(secret)) == (10, 22)
    assert key["id"] == identifier
    assert key["hashed_secret"] == hashlib.sha256(secret.encode()).digest()
    assert (key["user_id"], key["token_name"], key["login_type"]) == (user["id"], NAME, "token")
    assert (key["expires_at"], key["lifetime_seconds"]) == (NOW + LIFETIME, 365 * 24 * 3600)
    assert (grant.expires, grant.new, grant.stale) == (NOW + LIFETIME, True, False)


async def test_migrations_pending(empty_database: CoderdDatabase) -> None:
    with pytest.raises(MigrationsPending):
        await ensure(empty_database)


async def test_nothing_is_written_while_the_token_is_valid(database: CoderdDatabase) -> None:
    grant = await ensure(database)
    before = await versions(database)

    repeated = await ensure(database, f"{grant.token}\n", now=NOW + timedelta(days=335))

    assert (repeated.token, repeated.new, repeated.stale) == (grant.token, False, False)
    assert await versions(database) == before


async def test_a_user_that_exists_is_kept(database: CoderdDatabase) -> None:
    first = await ensure(database)
    [user] = await users(database)
    await revoke(database.url, NAME)
    second = await ensure(database)
    assert [row["id"] for row in await users(database)] == [user["id"]]
    assert second.token != first.token


async def test_another_user_with_the_username_is_not_changed(database: CoderdDatabase) -> None:
    await add_user(database, USERNAME.upper(), "jo@example.com")
    before = await versions(database)

    for _ in range(2):
        with pytest.raises(UsernameTaken) as caught:
            await ensure(database)
    assert "jo@example.com" not in str(caught.value)

    assert await versions(database) == before
    assert await tokens(database) == {}
    with pytest.raises(UsernameTaken):
        await delete_stale_tokens(database.url, NAME, "x-y")
    await revoke(database.url, NAME)
    assert await versions(database) == before


async def test_another_user_with_the_email_address_is_not_changed(database: CoderdDatabase) -> None:
    await add_user(database, "jo", EMAIL)
    before = await versions(database)
    with pytest.raises(UsernameTaken):
        await ensure(database)
    assert await versions(database) == before


async def test_a_system_user_with_another_login_type_is_not_changed(database: CoderdDatabase) -> None:
    await add_user(database, USERNAME, "jo@example.com")
    await database.server.execute("UPDATE users SET is_system = true", database.name)
    before = await users(database)
    with pytest.raises(UsernameTaken):
        await ensure(database)
    assert await users(database) == before


async def test_a_deleted_user_is_replaced(database: CoderdDatabase) -> None:
    grant = await ensure(database)
    await database.server.execute("UPDATE users SET deleted = true", database.name)
    repeated = await ensure(database, grant.token)
    assert sorted(row["deleted"] for row in await users(database)) == [False, True]
    assert repeated.new


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE users SET status = 'suspended'",
        "UPDATE users SET rbac_roles = '{}'",
        "UPDATE users SET rbac_roles = '{auditor}'",
    ],
)
async def test_status_and_role_of_the_user_are_restored(database: CoderdDatabase, change: str) -> None:
    grant = await ensure(database)
    await database.server.execute(change, database.name)
    assert (await ensure(database, grant.token)).token == grant.token
    [user] = await users(database)
    assert user["status"] == "active"
    assert "owner" in user["rbac_roles"]


async def test_a_token_near_its_expiration_gets_a_successor(database: CoderdDatabase) -> None:
    old = await ensure(database)
    late = NOW + timedelta(days=336)

    new = await ensure(database, old.token, now=late)

    assert (new.new, new.stale, new.expires) == (True, True, late + LIFETIME)
    assert await tokens(database) == {NAME: old.token[:10], f"{NAME}-2": new.token[:10]}
    await delete_stale_tokens(database.url, NAME, new.token)
    assert await tokens(database) == {f"{NAME}-2": new.token[:10]}

    later = late + timedelta(days=336)
    newest = await ensure(database, new.token, now=later)
    await delete_stale_tokens(database.url, NAME, newest.token)
    assert await tokens(database) == {NAME: newest.token[:10]}


async def test_a_crash_before_the_secret_is_written_keeps_the_token(database: CoderdDatabase) -> None:
    old = await ensure(database)
    late = NOW + timedelta(days=336)
    await ensure(database, old.token, now=late)
    repeated = await ensure(database, old.token, now=late)
    assert await tokens(database) == {NAME: old.token[:10], f"{NAME}-2": repeated.token[:10]}


async def test_a_crash_after_the_secret_is_written_leaves_a_stale_token(database: CoderdDatabase) -> None:
    old = await ensure(database)
    late = NOW + timedelta(days=336)
    new = await ensure(database, old.token, now=late)
    repeated = await ensure(database, new.token, now=late)
    assert (repeated.token, repeated.new, repeated.stale) == (new.token, False, True)


async def test_an_expired_token_is_replaced(database: CoderdDatabase) -> None:
    old = await ensure(database)
    new = await ensure(database, old.token, now=NOW + timedelta(days=366))
    await delete_stale_tokens(database.url, NAME, new.token)
    assert await tokens(database) == {f"{NAME}-2": new.token[:10]}


@pytest.mark.parametrize("text", ["", "garbage", "a-b-c", "-", "\x00", "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB"])
async def test_an_invalid_token_is_replaced(database: CoderdDatabase, text: str) -> None:
    assert (await ensure(database, text)).new


async def test_a_known_id_with_another_secret_is_replaced(database: CoderdDatabase) -> None:
    old = await ensure(database)
    new = await ensure(database, old.token[:-1] + ("a" if old.token[-1] != "a" else "b"))
    assert new.new
    assert new.stale


async def test_a_lost_secret_leaves_at_most_two_tokens(database: CoderdDatabase) -> None:
    grants = [await ensure(database, now=NOW + timedelta(seconds=second)) for second in range(4)]
    assert set((await tokens(database)).values()) == {grant.token[:10] for grant in grants[-2:]}


async def test_control_planes_in_one_database_are_independent(database: CoderdDatabase) -> None:
    mine = await ensure(database)
    theirs = await ensure(database, mine.token, name=OTHER)
    assert theirs.new
    assert len(await users(database)) == 1
    await delete_stale_tokens(database.url, OTHER, theirs.token)
    assert await tokens(database) == {NAME: mine.token[:10], OTHER: theirs.token[:10]}
    await revoke(database.url, OTHER)
    assert not (await ensure(database, mine.token)).new


async def test_no_token_is_deleted_if_the_one_to_keep_is_missing(database: CoderdDatabase) -> None:
    grant = await ensure(database)
    await delete_stale_tokens(database.url, NAME, "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB")
    assert await tokens(database) == {NAME: grant.token[:10]}


async def test_revoke_deletes_both_tokens_and_is_idempotent(database: CoderdDatabase) -> None:
    old = await ensure(database)
    await ensure(database, old.token, now=NOW + timedelta(days=336))
    for _ in range(2):
        await revoke(database.url, NAME)
        assert await tokens(database) == {}


async def test_revoke_in_an_empty_database(empty_database: CoderdDatabase) -> None:
    await revoke(empty_database.url, NAME)


async def test_revoke_without_the_user(database: CoderdDatabase) -> None:
    await revoke(database.url, NAME)
    assert await users(database) == []


async def test_revoke_ignores_columns_that_only_a_new_row_requires(database: CoderdDatabase) -> None:
    await ensure(database)
    await database.server.execute("ALTER TABLE users ADD COLUMN new text NOT NULL DEFAULT ''", database.name)
    await database.server.execute("ALTER TABLE users ALTER COLUMN new DROP DEFAULT", database.name)
    with pytest.raises(SchemaUnsupported):
        await ensure(database)
    await revoke(database.url, NAME)
    assert await tokens(database) == {}


async def test_revoke_rejects_unknown_tables(database: CoderdDatabase) -> None:
    await ensure(database)
    await database.server.execute("ALTER TABLE api_keys RENAME COLUMN token_name TO label", database.name)
    with pytest.raises(SchemaUnsupported, match="lacks token_name"):
        await revoke(database.url, NAME)


async def test_concurrent_operators_create_one_user(database: CoderdDatabase) -> None:
    names = [token_name("team", str(number)) for number in range(4)]
    grants = await asyncio.gather(*(ensure(database, name=name) for name in names * 2))
    assert len(await users(database)) == 1
    assert {grant.token[:10] for grant in grants} == set((await tokens(database)).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE users ADD COLUMN shoe_size int NOT NULL", "users requires a value for shoe_size"),
        ("ALTER TABLE api_keys ADD COLUMN shape text NOT NULL", "api_keys requires a value for shape"),
        ("ALTER TABLE users DROP COLUMN is_system", "users lacks is_system"),
        ("ALTER TABLE api_keys RENAME COLUMN scopes TO scope", "api_keys lacks scopes"),
        ("ALTER TABLE api_keys ALTER COLUMN hashed_secret TYPE text", "SQLSTATE"),
        ("ALTER TABLE api_keys ADD CHECK (token_name = '')", "SQLSTATE 23514"),
    ],
)
async def test_an_unknown_schema_is_not_changed(database: CoderdDatabase, change: str, message: str) -> None:
    await database.server.execute(change, database.name)
    with pytest.raises(SchemaUnsupported, match=message):
        await ensure(database)
    assert await rows(database, "SELECT id FROM users") == []


async def test_new_columns_with_defaults_are_supported(database: CoderdDatabase) -> None:
    await database.server.execute(
        """
        ALTER TABLE users ADD COLUMN nickname text, ADD COLUMN points int NOT NULL DEFAULT 0,
            ADD COLUMN number int NOT NULL GENERATED ALWAYS AS IDENTITY,
            ADD COLUMN loud text NOT NULL GENERATED ALWAYS AS (upper(username)) STORED
        """,
        database.name,
    )
    assert (await ensure(database)).new


async def test_a_missing_table_means_pending_migrations(database: CoderdDatabase) -> None:
    await database.server.execute("DROP TABLE api_keys", database.name)
    with pytest.raises(MigrationsPending):
        await ensure(database)


async def test_a_database_user_without_permissions(database: CoderdDatabase) -> None:
    await database.server.execute("DROP ROLE IF EXISTS unprivileged; CREATE ROLE unprivileged LOGIN")
    url = database.server.url(database.name, user="unprivileged")
    with pytest.raises(DatabaseUnreachable, match="does not allow this user to read and write"):
        await ensure_token(url, NAME, "", now=NOW, rng=SystemRandom())


async def test_the_repr_of_a_grant_has_no_token(database: CoderdDatabase) -> None:
    grant = await ensure(database)
    assert grant.token not in repr(grant)
    assert grant.token[11:] not in repr(grant)


async def test_a_token_that_cannot_be_stored_does_not_exist(database: CoderdDatabase) -> None:
    async def store(token: str) -> None:
        assert token
        assert await tokens(database) == {}, "it does not work before it is stored"
        raise ConnectionError("no room")

    with pytest.raises(DatabaseUnreachable):
        await ensure_token(database.url, NAME, "", now=NOW, rng=SystemRandom(), store=store)
    assert await tokens(database) == {}
