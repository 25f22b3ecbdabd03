"""A PostgreSQL with coderd's tables, a database of one's own per test."""

import os

import pytest

from coder_k8s.dev.postgres import Postgres
from tests.support.databases import VERSIONS, CoderdDatabase, create_database

__all__ = ["CoderdDatabase", "create_database"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_coderd: runs against the coderd of CODERD_URL and CODERD_DATABASE_URL")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    given = "CODERD_URL" in os.environ and "CODERD_DATABASE_URL" in os.environ
    skip = pytest.mark.skip(reason="CODERD_URL and CODERD_DATABASE_URL name no coderd")
    for item in items:
        if not given and item.get_closest_marker("real_coderd"):
            item.add_marker(skip)


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
