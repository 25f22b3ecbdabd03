"""The database of coderd in the PostgreSQL of `coder-k8s dev`."""

from collections.abc import Sequence
from pathlib import Path

from . import coderd_server
from .postgres import Postgres

USER = "coder"
SCHEMA = Path(coderd_server.__file__).parent / "schema"
SIMULATOR_TABLES = (SCHEMA / "2.30.0.sql", SCHEMA / "2.36.1.sql")
"""Tables for the simulator; a real coderd creates its own."""


async def prepare(server: Postgres, name: str, password: str, tables: Sequence[Path] = ()) -> str:
    """Create a database with these tables and its user if they are missing; return its URL."""
    known = await server.fetch("SELECT 1 FROM pg_roles WHERE rolname = $1", "postgres", USER)
    await server.execute(f"{'ALTER' if known else 'CREATE'} ROLE {USER} LOGIN PASSWORD '{password}'")
    if not await server.fetch("SELECT 1 FROM pg_database WHERE datname = $1", "postgres", name):
        await server.execute(f"CREATE DATABASE {name} OWNER {USER}")
    [(present,)] = await server.fetch("SELECT to_regclass('users')", name)
    if present is None:
        await server.execute("\n".join([f"SET ROLE {USER};", *(path.read_text() for path in tables)]), name)
    return server.url(name, USER, password)
