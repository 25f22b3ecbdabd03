"""Reads tokens from a real database with coderd's tables."""

import asyncpg

from coder_k8s.dev.coderd_server.records import Token, User
from coder_k8s.dev.coderd_server.state import State

QUERY = """
    SELECT hashed_secret, expires_at, users.id, username, name, users.login_type::text, status::text, rbac_roles
    FROM api_keys JOIN users ON users.id = user_id WHERE api_keys.id = $1 AND NOT deleted
"""


async def load_token(state: State, url: str, token: str) -> None:
    """Update a token from the database. If the database is unavailable, it is so for every token."""
    identifier = token.partition("-")[0]
    elsewhere = identifier in state.tokens and identifier not in state.tokens_of_database
    if elsewhere and not state.switches.database_down:
        return
    try:
        connection = await asyncpg.connect(url, timeout=2)
        try:
            row = await connection.fetchrow(QUERY, identifier)
        finally:
            await connection.close(timeout=2)
    except (OSError, asyncpg.PostgresError):
        state.set(database_down=True)
        return
    state.set(database_down=False)
    if elsewhere:
        return
    state.tokens.pop(identifier, None)
    state.tokens_of_database.add(identifier)
    if row is not None:
        hashed, expires, user_id, username, name, login_type, status, roles = row.values()
        user = User(username, tuple(roles), name, login_type, status, in_organization=False, id=str(user_id))
        state.tokens[identifier] = Token(user, hashed, expires)


async def delete_token(url: str, identifier: str) -> None:
    connection = await asyncpg.connect(url, timeout=2)
    try:
        await connection.execute("DELETE FROM api_keys WHERE id = $1", identifier)
    finally:
        await connection.close(timeout=2)
