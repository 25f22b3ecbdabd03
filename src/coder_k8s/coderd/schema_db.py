"""Reads which migrations of coderd's database have run."""

from coder_k8s.coderd.database import Timeouts, transaction

TABLE = "SELECT to_regclass('schema_migrations') IS NOT NULL"
QUERY = "SELECT version, dirty FROM schema_migrations"


async def schema_version(url: str, timeouts: Timeouts | None = None) -> tuple[int, bool]:
    """Return the number of the last migration, and whether it failed; 0 if none has run.

    Raise `DatabaseUnreachable` also while a migration holds a lock on the table.
    """
    async with transaction(url, timeouts or Timeouts()) as connection:
        if not await connection.fetchval(TABLE):
            return 0, False
        row = await connection.fetchrow(QUERY)
        return (int(row[0]), bool(row[1])) if row else (0, False)
