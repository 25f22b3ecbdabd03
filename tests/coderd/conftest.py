"""A PostgreSQL with coderd's tables, a database of one's own per test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from coder_k8s.dev.processes import free_port
from tests.support.postgres import Postgres

SCHEMA = Path(__file__).parent / "schema"
VERSIONS = {
    "2.30.0": (SCHEMA / "2.30.0.sql",),
    "2.36.1": (SCHEMA / "2.30.0.sql", SCHEMA / "2.36.1.sql"),
}
ACCESS = "host all coder 127.0.0.1/32 scram-sha-256\n"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_coderd: runs against the coderd of CODERD_URL and CODERD_DATABASE_URL")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    given = "CODERD_URL" in os.environ and "CODERD_DATABASE_URL" in os.environ
    skip = pytest.mark.skip(reason="CODERD_URL and CODERD_DATABASE_URL name no coderd")
    for item in items:
        if not given and item.get_closest_marker("real_coderd"):
            item.add_marker(skip)


class CoderdDatabase(NamedTuple):
    """A database with coderd's tables."""

    server: Postgres
    name: str
    url: str


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server with a template per version of coderd, and the user `coder` that needs a password."""
    server = Postgres.start(free_port(), access=ACCESS)
    try:
        for version, scripts in VERSIONS.items():
            server.create_template(version, *scripts)
        yield server
    finally:
        server.stop()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of coderd's tables in turn."""
    return str(request.param)


@pytest.fixture
async def database(postgres: Postgres, version: str) -> CoderdDatabase:
    """A database of one's own as coderd of that version leaves it after its migrations."""
    return await create_database(postgres, version)


@pytest.fixture
async def empty_database(postgres: Postgres) -> CoderdDatabase:
    """A database that coderd has not touched yet."""
    return await create_database(postgres, "template0")


async def create_database(server: Postgres, template: str) -> CoderdDatabase:
    name = f"test_{uuid4().hex}"
    await server.execute(f'CREATE DATABASE {name} TEMPLATE "{template}"')
    return CoderdDatabase(server, name, server.url(name))
