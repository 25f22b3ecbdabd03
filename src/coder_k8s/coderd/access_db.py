"""The operator's own user and token, written into coderd's database.

Each call is one connection and one short transaction, both closed before it returns. A token has two names that it
alternates between, for coderd allows a name only once per user: `ensure_token` may put a new token beside the old
one, the caller stores it, and only then `retire` deletes what the caller no longer holds. A first token is stored
before the transaction is committed, so that none works that nobody knows of.
"""

import hashlib
import string
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple
from uuid import UUID

import msgspec

from coder_k8s.coderd.database import Connection, Timeouts, transaction
from coder_k8s.coderd.errors import MigrationsPending, SchemaUnsupported, UsernameTaken

USERNAME = "coder-k8s-operator"
EMAIL = "coder-k8s-operator@coder-k8s.invalid"
LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)

# Any number will do as long as it stays the same: it keeps two operators from making the user at the same time.
_LOCK = 0x636F6465722D6B38
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

_READ: dict[str, set[str]] = {
    "users": {"id", "username", "login_type", "deleted", "is_system"},
    "api_keys": {"id", "hashed_secret", "user_id", "expires_at", "created_at", "login_type", "token_name"},
}
"""What it takes to find and delete a token."""


class Grant(msgspec.Struct, frozen=True):
    """A token that works, whether it is another one than before, and whether `retire` has something to delete."""

    token: str
    expires: datetime
    new: bool
    stale: bool

    def __repr__(self) -> str:
        return f"Grant(expires={self.expires}, new={self.new}, stale={self.stale})"


class _Token(NamedTuple):
    id: str
    name: str
    hashed_secret: bytes
    expires: datetime


def token_name(namespace: str, name: str) -> str:
    """The name of the token of one control plane: stable, and different for every control plane on a database."""
    digest = 0xCBF29CE484222325
    for byte in f"{namespace}\0{name}".encode():
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{USERNAME}-{digest:016x}"


async def keep_token(
    url: str, name: str, current: str, *, now: datetime, rng: Random, timeouts: Timeouts | None = None
) -> Grant | None:
    """The current token, if it is good for a while; the user is made or mended on the way."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        _, tokens = await _find(connection, name, now, rng)
        return _kept(tokens, current, now)


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
    """The same, and where there is none, a new one. It is handed to `store`, if given, before it works."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        user, tokens = await _find(connection, name, now, rng)
        if (kept := _kept(tokens, current, now)) is not None:
            return kept
        held = _held(tokens, current)
        working = held if held is not None and held.expires > now else None
        place, replaced = _place(tokens, name, working)
        if replaced is not None:
            await connection.execute("DELETE FROM api_keys WHERE id = $1", replaced.id)
        token = await _insert_token(connection, user, place, now, rng)
        if store is not None:
            await store(token)
        return Grant(token, now + LIFETIME, new=True, stale=any(each != replaced for each in tokens))


async def retire(url: str, name: str, keep: str, *, timeouts: Timeouts | None = None) -> None:
    """Delete the other token of this control plane, provided that the one to keep is there."""
    async with transaction(url, timeouts or Timeouts()) as connection:
        await _check_schema(connection)
        user = await _find_user(connection)
        if user is None:
            return
        tokens = await _tokens(connection, user, name)
        kept = _held(tokens, keep)
        if kept is not None:
            await _delete(connection, [each for each in tokens if each != kept])


async def revoke(url: str, name: str, *, timeouts: Timeouts | None = None) -> None:
    """Delete every token of this control plane; nothing to do when there are no tables or no user of the operator.

    A column that a new row would have to fill does not matter here.
    """
    async with transaction(url, timeouts or Timeouts()) as connection:
        try:
            await _check_schema(connection, _READ, inserting=False)
            user = await _find_user(connection)
        except (MigrationsPending, UsernameTaken):
            return
        if user is not None:
            await _delete(connection, await _tokens(connection, user, name))


async def _find(connection: Connection, name: str, now: datetime, rng: Random) -> tuple[UUID, list[_Token]]:
    """The operator's user, and the tokens of one control plane, which nobody else changes meanwhile."""
    await _check_schema(connection)
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    user = await _ensure_user(connection, now, rng)
    return user, await _tokens(connection, user, name)


async def _check_schema(
    connection: Connection, used: dict[str, set[str]] = _COLUMNS, *, inserting: bool = True
) -> None:
    """Refuse tables that lack a column that we use or, for a new row, want one that we do not know."""
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
            raise MigrationsPending("coderd has not made its tables yet")
        if missing := known - columns.keys():
            raise SchemaUnsupported(f"table {table} lacks {', '.join(sorted(missing))}")
        if inserting and (unknown := {name for name, required in columns.items() if required} - known):
            raise SchemaUnsupported(f"table {table} wants a value for {', '.join(sorted(unknown))}")


async def _find_user(connection: Connection) -> UUID | None:
    """The operator's user; a human of that name is none of our business."""
    row = await connection.fetchrow(
        """
        SELECT id, is_system AND login_type = 'none' AS ours FROM users WHERE lower(username) = $1 AND NOT deleted
        """,
        USERNAME,
    )
    if row is None:
        return None
    if not row["ours"]:
        raise UsernameTaken(f"the name {USERNAME} belongs to a user that is not the operator's: rename that user")
    return UUID(str(row["id"]))


async def _ensure_user(connection: Connection, now: datetime, rng: Random) -> UUID:
    """The operator's user, made when missing, active and owner again when someone changed that."""
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
    """The tokens of one control plane, oldest first."""
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


def _kept(tokens: list[_Token], current: str, now: datetime) -> Grant | None:
    held = _held(tokens, current)
    if held is None or held.expires - now < RENEW_BEFORE:
        return None
    return Grant(current.strip(), held.expires, new=False, stale=len(tokens) > 1)


def _held(tokens: list[_Token], token: str) -> _Token | None:
    """Which of the tokens this is."""
    identifier, _, secret = token.strip().partition("-")
    hashed = hashlib.sha256(secret.encode()).digest()
    return next((each for each in tokens if (each.id, each.hashed_secret) == (identifier, hashed)), None)


def _place(tokens: list[_Token], name: str, working: _Token | None) -> tuple[str, _Token | None]:
    """The name for a new token, and the token that must go for it: never the one in use."""
    by_name = {each.name: each for each in tokens}
    for free in (name, _alternate(name)):
        if free not in by_name:
            return free, None
    replaced = next(each for each in tokens if each != working)
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
