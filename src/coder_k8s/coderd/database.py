"""One short transaction in coderd's database.

The driver is asyncpg: it lives on the event loop, passes unknown URL parameters on to the server as coderd's own
driver does, and costs 6 MB and 30 ms at import where psycopg with its own libpq and OpenSSL costs 14 MB and 90 ms.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import msgspec

from coder_k8s.coderd import database_url
from coder_k8s.coderd.errors import AccessError, DatabaseUnreachable, SchemaUnsupported, UsernameTaken

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_TRY_THE_NEXT = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TargetServerAttributeNotMatched,
)
_MEANINGS: tuple[tuple[str, type[AccessError], str], ...] = (
    ("28P01", DatabaseUnreachable, "the database refuses the user or the password"),
    ("28", DatabaseUnreachable, "the database does not let this user in from here, or not without TLS"),
    ("3D000", DatabaseUnreachable, "the database of the connection URL does not exist"),
    ("25006", DatabaseUnreachable, "the database server is read-only"),
    ("55P03", DatabaseUnreachable, "coderd's tables are locked by someone else"),
    ("57014", DatabaseUnreachable, "the database does not answer in time"),
    ("42501", DatabaseUnreachable, "the database user may not read and write coderd's tables"),
    ("22", SchemaUnsupported, "coderd's tables do not take the operator's rows"),
    ("23", SchemaUnsupported, "coderd's tables do not take the operator's rows"),
    ("42", SchemaUnsupported, "coderd's tables do not take the operator's rows"),
    ("P0", SchemaUnsupported, "coderd's tables do not take the operator's rows"),
    ("", DatabaseUnreachable, "the database connection failed"),
)


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds that connecting to one server, waiting for a lock, one statement, and everything together may take."""

    connect: float = 5
    lock: float = 2
    statement: float = 4
    total: float = 15


@asynccontextmanager
async def transaction(url: str, timeouts: Timeouts) -> AsyncIterator[Connection]:
    """A connection in a transaction, both gone afterwards.

    On any failure the connection is dropped, which rolls back without asking a server that may no longer answer.
    Errors are raised outside of the handlers, so that none carries what the driver knows.
    """
    failure: AccessError
    try:
        async with asyncio.timeout(timeouts.total):
            connection = await _connect(url, timeouts)
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
        failure = DatabaseUnreachable("the database does not answer in time")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, ValueError) as error:
        failure = _meaning(error)
    else:
        return
    raise failure


async def _connect(url: str, timeouts: Timeouts) -> Connection:
    """A connection to the first server of the URL that takes one."""
    database = _database(url)
    for server in database.servers:
        try:
            return await asyncpg.connect(
                **database.arguments,
                host=server.host,
                port=server.port,
                timeout=timeouts.connect,
                statement_cache_size=0,
            )
        except _TRY_THE_NEXT:
            if server is database.servers[-1]:
                raise
    raise AssertionError("a URL names at least one server")


def _database(url: str) -> database_url.Database:
    try:
        return database_url.parse(url)
    except ValueError as error:
        reason = str(error)
    raise DatabaseUnreachable(f"the connection URL is {reason}")


def _meaning(error: Exception) -> AccessError:
    """What a failure of the driver means, in words that hold nothing of the URL."""
    if isinstance(error, asyncpg.UniqueViolationError) and error.table_name == "users":
        return UsernameTaken("the operator's name or e-mail address belongs to another user")
    if isinstance(error, OSError):
        return DatabaseUnreachable(f"cannot connect to the database: {_network(error)}")
    state = getattr(error, "sqlstate", None) or ""
    for start, kind, message in _MEANINGS:
        if state.startswith(start):
            return kind(f"{message} (SQLSTATE {state})" if state else message)
    raise AssertionError("the last row fits everything")


def _network(error: OSError) -> str:
    """Why there is no connection, without the address: that of a pod changes."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused"
    if error.strerror:
        return error.strerror
    if isinstance(error, ConnectionError):  # how the driver reports a server without TLS
        return "the server refuses TLS"
    return "none of its addresses accepts a connection"
