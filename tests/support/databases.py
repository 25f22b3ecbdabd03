"""PostgreSQL databases with coderd's tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from coder_k8s.dev import coderd_server
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import free_port

SCHEMA = Path(coderd_server.__file__).parent / "schema"
VERSIONS = {
    "2.30.0": (SCHEMA / "2.30.0.sql",),
    "2.36.1": (SCHEMA / "2.30.0.sql", SCHEMA / "2.36.1.sql"),
}
ACCESS = "host all coder 127.0.0.1/32 scram-sha-256\n"


class CoderdDatabase(NamedTuple):
    """A database with coderd's tables."""

    server: Postgres
    name: str
    url: str


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server with a template database per version of coderd, and a user `coder` with a password."""
    server = Postgres.start(free_port(), access=ACCESS)
    try:
        for version, scripts in VERSIONS.items():
            server.create_template(version, *scripts)
        yield server
    finally:
        server.stop()


async def create_database(server: Postgres, template: str) -> CoderdDatabase:
    name = f"test_{uuid4().hex}"
    await server.copy_database(template, name)
    return CoderdDatabase(server, name, server.url(name))
