"""Manages the operator's user and token in coderd's database.

Each call uses one connection and one short transaction. Tokens alternate between two names, because a name is unique
per user: `ensure_token` adds a new token next to the old one, the caller stores it, then `delete_stale_tokens` deletes
the old one. The first token is stored before the transaction commits, so that every valid token is in a Secret.
"""

import hashlib
import string
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import msgspec

from coder_k8s.coderd.database import Connection, Timeouts, transaction
from coder_k8s.coderd.errors import MigrationsPending, SchemaUnsupported, UsernameTaken

USERNAME = "coder-k8s-operator"
EMAIL = "coder-k8s-operator@coder-k8s.invalid"
LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)

# An arbitrary constant. The lock prevents two operators from creating the user at the same time.
_ADVISORY_LOCK = 0x636F6465722D6B38
_ALPHABET = string.ascii_letters + string.digits

_COLUMNS: dict[str, set[str]] = {
    "users": {
        "id",
        "email",
        "username",
        "name",
        "hashed_password",
        "created_at",
        "updated_at",
        "status",
        "rbac_roles",
        "login_type",
        "deleted",
        "is_system",
    },
    "api_keys": {
        "id",
        "hashed_secret",
        "user_id",
        "last_used",
        "expires_at",
        "created_at",
        "updated_at",
        "login_type",
        "lifetime_seconds",
        "scopes",
        "allow_list",
        "token_name",
    },
}

_READ_COLUMNS: dict[str, set[str]] = {
    "users": {"id", "username", "login_type", "deleted", "is_system"},
    "api_keys": {"id", "hashed_secret", "user_id", "expires_at", "created_at", "login_type", "token_name"},
}
"""The columns that finding and deleting a token requires."""


class Grant(msgspec.Struct, frozen=True):
    """A valid token; `new` if it was just created, `stale` if there are others to delete."""

    token: str
    expires: datetime
    new: bool
    stale: bool

    def __repr__(self) -> str:
        return f"Grant(expires={self.expires}, new={self.new}, stale={self.stale})"


class _Token(msgspec.Struct, frozen=True):
    id: str
    name: str
    hashed_secret: bytes
    expires: datetime


def token_name(namespace: str, name: str) -> str:
    """Return the name of a control plane's token: stable, and unique per control plane in a database."""
    digest = 0xCBF29CE484222325
    for byte in f"{namespace}\0{name}".encode():
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{USERNAME}-{digest:016x}"


async def check_token(
    url: str, name: str, current: str, *, now: datetime, rng: Random, timeouts: Timeouts | None = None
) -> Grant | None:
    """Return the current token unless it expires soon; create or repair the operator's user first."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        _, tokens = await _find(connection, name, now, rng)
        return _valid_token(tokens, current, now)


async def ensure_token(
    url: str,
    name: str,
    current: str,
    *,
    now: datetime,
    rng: Random,
    timeouts: Timeouts | None = None,
    store: Callable[[str], Awaitable[None]] | None = None,
) -> Grant:
    """Return the current token, or a new one if it is invalid or expires soon; `store` runs before the commit."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        user, tokens = await _find(connection, name, now, rng)
        if (valid := _valid_token(tokens, current, now)) is not None:
            return valid
        row = _match(tokens, current)
        in_use = row if row is not None and row.expires > now else None
        free_name, replaced = _free_name(tokens, name, in_use)
        if replaced is not None:
            await connection.execute("DELETE FROM api_keys WHERE id = $1", replaced.id)
        token = await _insert_token(connection, user, free_name, now, rng)
        if store is not None:
            await store(token)
        return Grant(token, now + LIFETIME, new=True, stale=any(each != replaced for each in tokens))


async def delete_stale_tokens(url: str, name: str, keep: str, *, timeouts: Timeouts | None = None) -> None:
    """Delete the other tokens of this control plane, but only if the one to keep exists."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        await _check_schema(connection)
        user = await _find_user(connection)
        if user is None:
            return
        tokens = await _tokens(connection, user, name)
        kept = _match(tokens, keep)
        if kept is not None:
            await _delete(connection, [each for each in tokens if each != kept])


async def revoke(url: str, name: str, *, timeouts: Timeouts | None = None) -> None:
    """Delete every token of this control plane; do nothing if there are no tables or no user of the operator.

    It ignores columns that only a new row requires.
    """
    async with transaction(url, timeouts or Timeouts()) as connection:
        try:
            await _check_schema(connection, _READ_COLUMNS, inserting=False)
            user = await _find_user(connection)
        except (MigrationsPending, UsernameTaken):
            return
        if user is not None:
            await _delete(connection, await _tokens(connection, user, name))


async def _find(connection: Connection, name: str, now: datetime, rng: Random) -> tuple[UUID, list[_Token]]:
    """Lock, and return the operator's user and the tokens of one control plane."""
    await _check_schema(connection)
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY_LOCK)
    user = await _ensure_user(connection, now, rng)
    return user, await _tokens(connection, user, name)


async def _check_schema(
    connection: Connection, used: dict[str, set[str]] = _COLUMNS, *, inserting: bool = True
) -> None:
    """Raise `SchemaUnsupported` if a table lacks a column or, for inserts, requires an unknown one."""
    for table, known in used.items():
        rows = await connection.fetch(
            """
            SELECT attname, attnotnull AND NOT atthasdef AND attidentity = ''
            FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
            """,
            table,
        )
        columns = {row[0]: row[1] for row in rows}
        if not columns:
            raise MigrationsPending("Waiting for Coder to finish its database migrations")
        if missing := known - columns.keys():
            raise SchemaUnsupported(f"In Coder's database, table {table} lacks {', '.join(sorted(missing))}")
        if inserting and (unknown := {name for name, required in columns.items() if required} - known):
            names = ", ".join(sorted(unknown))
            raise SchemaUnsupported(f"In Coder's database, table {table} requires a value for {names}")


async def _find_user(connection: Connection) -> UUID | None:
    """Return the operator's user; raise `UsernameTaken` if another user has its name."""
    row = await connection.fetchrow(
        """
        SELECT id, is_system AND login_type = 'none' AS is_operator FROM users
        WHERE lower(username) = $1 AND NOT deleted
        """,
        USERNAME,
    )
    if row is None:
        return None
    if not row["is_operator"]:
        raise UsernameTaken(f"User {USERNAME} in Coder does not belong to the operator")
    return UUID(str(row["id"]))


async def _ensure_user(connection: Connection, now: datetime, rng: Random) -> UUID:
    """Return the operator's user; create it if missing, and restore its status and its owner role."""
    user = await _find_user(connection)
    if user is not None:
        await connection.execute(
            """
            UPDATE users SET status = 'active', rbac_roles = array_append(array_remove(rbac_roles, 'owner'), 'owner'),
                             updated_at = $2
            WHERE id = $1 AND is_system AND (status <> 'active' OR NOT 'owner' = ANY (rbac_roles))
            """,
            user,
            now,
        )
        return user
    user = UUID(int=rng.getrandbits(128), version=4)
    await connection.execute(
        """
        INSERT INTO users (id, email, username, name, hashed_password, created_at, updated_at, status, rbac_roles,
                           login_type, is_system)
        VALUES ($1, $2, $3, $3, '', $4, $4, 'active', '{owner}', 'none', true)
        """,
        user,
        EMAIL,
        USERNAME,
        now,
    )
    return user


async def _tokens(connection: Connection, user: UUID, name: str) -> list[_Token]:
    """Return the tokens of one control plane, oldest first."""
    rows = await connection.fetch(
        """
        SELECT id, token_name, hashed_secret, expires_at FROM api_keys
        WHERE user_id = $1 AND login_type = 'token' AND token_name IN ($2, $3) ORDER BY created_at
        """,
        user,
        name,
        _alternate(name),
    )
    return [_Token(*row.values()) for row in rows]


def _alternate(name: str) -> str:
    return f"{name}-2"


def _valid_token(tokens: list[_Token], current: str, now: datetime) -> Grant | None:
    row = _match(tokens, current)
    if row is None or row.expires - now < RENEW_BEFORE:
        return None
    return Grant(current.strip(), row.expires, new=False, stale=len(tokens) > 1)


def _match(tokens: list[_Token], token: str) -> _Token | None:
    """Return the row of a token, or None if it is not in the database."""
    identifier, _, secret = token.strip().partition("-")
    hashed = hashlib.sha256(secret.encode()).digest()
    return next((each for each in tokens if (each.id, each.hashed_secret) == (identifier, hashed)), None)


def _free_name(tokens: list[_Token], name: str, in_use: _Token | None) -> tuple[str, _Token | None]:
    """Return a name for a new token, and the token that it replaces: never the one in use."""
    by_name = {each.name: each for each in tokens}
    for free in (name, _alternate(name)):
        if free not in by_name:
            return free, None
    replaced = next(each for each in tokens if each != in_use)
    return replaced.name, replaced


async def _insert_token(connection: Connection, user: UUID, name: str, now: datetime, rng: Random) -> str:
    identifier, secret = ("".join(rng.choices(_ALPHABET, k=length)) for length in (10, 22))
    await connection.execute(
        """
        INSERT INTO api_keys (id, hashed_secret, user_id, last_used, expires_at, created_at, updated_at, login_type,
                              lifetime_seconds, scopes, allow_list, token_name)
        VALUES ($1, $2, $3, $4, $5, $4, $4, 'token', $6, '{coder:all}', '{*:*}', $7)
        """,
        identifier,
        hashlib.sha256(secret.encode()).digest(),
        user,
        now,
        now + LIFETIME,
        int(LIFETIME.total_seconds()),
        name,
    )
    return f"{identifier}-{secret}"


async def _delete(connection: Connection, tokens: list[_Token]) -> None:
    await connection.execute("DELETE FROM api_keys WHERE id = ANY ($1)", [each.id for each in tokens])
