"""A PostgreSQL server with coderd's tables, and a database per test."""

import os

import pytest

from coder_k8s.dev.postgres import Postgres
from tests.support.databases import VERSIONS, CoderdDatabase, create_database

__all__ = ["CoderdDatabase", "create_database"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_coderd: runs against the coderd of CODERD_URL and CODERD_DATABASE_URL")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    given = "CODERD_URL" in os.environ and "CODERD_DATABASE_URL" in os.environ
    skip = pytest.mark.skip(reason="CODERD_URL and CODERD_DATABASE_URL are not set")
    for item in items:
        if not given and item.get_closest_marker("real_coderd"):
            item.add_marker(skip)


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
