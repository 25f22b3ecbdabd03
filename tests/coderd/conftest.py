"""A PostgreSQL server with coderd's tables, and a database per test."""

import pytest

from coder_k8s.dev.postgres import Postgres
from tests.support.databases import VERSIONS, CoderdDatabase, create_database

__all__ = ["CoderdDatabase", "create_database"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each supported version of coderd's tables."""
    return str(request.param)


@pytest.fixture
async def database(postgres: Postgres, version: str) -> CoderdDatabase:
    """A database with the tables of that version."""
    return await create_database(postgres, version)


@pytest.fixture
async def empty_database(postgres: Postgres) -> CoderdDatabase:
    """A database without tables."""
    return await create_database(postgres, "template0")
