"""Short transactions in coderd's database.

The driver is asyncpg. It runs on the event loop and passes unknown URL parameters to the server, like coderd's driver.
Its import takes 6 MB and 30 ms; psycopg takes 14 MB and 90 ms. It is imported by the first transaction, because many
installations have none.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from coder_k8s.coderd import database_url
from coder_k8s.coderd.errors import AccessError, DatabaseUnreachable, SchemaUnsupported, UsernameTaken

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_SQLSTATES: tuple[tuple[str, type[AccessError], str], ...] = (
    ("28P01", DatabaseUnreachable, "rejects the user or the password"),
    ("28", DatabaseUnreachable, "does not allow this user to connect from here, or not without TLS"),
    ("3D000", DatabaseUnreachable, "does not have the database of the connection URL"),
    ("25006", DatabaseUnreachable, "is read-only"),
    ("55P03", DatabaseUnreachable, "has tables of Coder that another client locked"),
    ("57014", DatabaseUnreachable, "does not respond in time"),
    ("42501", DatabaseUnreachable, "does not allow this user to read and write Coder's tables"),
    ("22", SchemaUnsupported, "rejects the operator's rows in Coder's tables"),
    ("23", SchemaUnsupported, "rejects the operator's rows in Coder's tables"),
    ("42", SchemaUnsupported, "rejects the operator's rows in Coder's tables"),
    ("P0", SchemaUnsupported, "rejects the operator's rows in Coder's tables"),
    ("", DatabaseUnreachable, "closed the connection"),
)


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts in seconds: to connect to one server, to wait for a lock, for one statement, and in total."""

    connect: float = 5
    lock: float = 2
    statement: float = 4
    total: float = 15


@asynccontextmanager
async def transaction(url: str, timeouts: Timeouts) -> AsyncIterator[Connection]:
    """Open a connection and a transaction, and close both on exit.

    On failure the connection is dropped, which rolls back even if the server does not respond. Errors are raised
    outside of the handlers, so that they do not contain the driver's exception, which may contain the URL.
    """
    import asyncpg

    database = _database(url)
    failure: AccessError
    try:
        async with asyncio.timeout(timeouts.total):
            connection = await _connect(database, timeouts)
            try:
                await connection.execute(
                    f"BEGIN; SET LOCAL lock_timeout = {timeouts.lock * 1000:.0f};"
                    f"SET LOCAL statement_timeout = {timeouts.statement * 1000:.0f}"
                )
                yield connection
                await connection.execute("COMMIT")
                await connection.close()
            finally:
                connection.terminate()
    except AccessError:
        raise
    except TimeoutError:
        failure = DatabaseUnreachable(f"{database} does not respond in time")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, ValueError) as error:
        failure = _access_error(error, database)
    else:
        return
    raise failure


async def _connect(database: database_url.Database, timeouts: Timeouts) -> Connection:
    """Connect to the first server of the URL that accepts a connection."""
    import asyncpg
    from asyncpg import CannotConnectNowError, PostgresConnectionError, TargetServerAttributeNotMatched

    next_server = (OSError, PostgresConnectionError, CannotConnectNowError, TargetServerAttributeNotMatched)
    for server in database.servers:
        try:
            return await asyncpg.connect(
                **database.arguments,
                host=server.host,
                port=server.port,
                timeout=timeouts.connect,
                statement_cache_size=0,
            )
        except next_server:
            if server is database.servers[-1]:
                raise
    raise AssertionError("a URL names at least one server")


def _database(url: str) -> database_url.Database:
    try:
        return database_url.parse(url)
    except ValueError as error:
        reason = f"The connection URL is {error}"
    except OSError as error:
        reason = f"A certificate file of the connection URL cannot be read: {error.strerror or type(error).__name__}"
    raise DatabaseUnreachable(reason)


def _access_error(error: Exception, database: database_url.Database) -> AccessError:
    """Return the typed error for an error of the driver, with no other part of the URL than the host."""
    import asyncpg

    if isinstance(error, asyncpg.UniqueViolationError) and error.table_name == "users":
        return UsernameTaken("The operator's username or email address belongs to another user")
    if isinstance(error, OSError):
        return DatabaseUnreachable(f"Cannot connect to {database}: {_network_error(error)}")
    state = getattr(error, "sqlstate", None) or ""
    for prefix, kind, message in _SQLSTATES:
        if state.startswith(prefix):
            return kind(f"{database} {message}" + (f" (SQLSTATE {state})" if state else ""))
    raise AssertionError("the last row matches every state")


def _network_error(error: OSError) -> str:
    """Describe a connection error without the address, which may change with every pod."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused"
    if error.strerror:
        return error.strerror
    if isinstance(error, ConnectionError):  # the driver's error for a server without TLS
        return "the server does not support TLS"
    return "none of its addresses accepts a connection"
