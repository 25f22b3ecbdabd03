"""A real coderd without Kubernetes: one process per version and test run, with a real PostgreSQL.

Mark the tests with `pytest.mark.coder(version)`; see `coder_builds`. The server has no license and no built-in
provisioner daemons. `RealCoderd` and `SimulatedCoderd` have the same methods, so that one test can use both: what needs
a daemon, a real server gets by SQL.
"""

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import SystemRandom
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from coder_k8s.coderd.access_db import EMAIL, USERNAME, ensure_token, token_name
from coder_k8s.dev.coder_build import cached
from coder_k8s.dev.coderd_server import CoderdServer, User
from coder_k8s.dev.coderd_server.state import BUILT_IN_KEY
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import Process, answer, free_port

START_SECONDS = 180
PASSWORD = "SomeSecurePassword-123"
CONNECT = """
    INSERT INTO provisioner_daemons (
        id, created_at, last_seen_at, name, provisioners, tags, version, api_version, organization_id, key_id
    )
    SELECT gen_random_uuid(), seen, seen, $1, '{terraform}', $2::text::jsonb, '', '1.0', organizations.id,
        $4::text::uuid
    FROM organizations, (SELECT now() - $3::text::float * interval '1 second' AS seen) AS moment WHERE is_default
    RETURNING id
"""


class Coderd(ABC):
    """A coderd with a token of the operator."""

    url: str
    token: str

    @abstractmethod
    async def add_user(self, name: str, *roles: str) -> str:
        """Create a member of the default organization and return a token."""

    @abstractmethod
    async def suspend(self, name: str) -> None:
        """Suspend a user."""

    @abstractmethod
    async def connect_daemon(self, name: str, tags: Mapping[str, str], seen: timedelta = timedelta()) -> str:
        """Add a daemon that was last seen this long ago, and return its ID."""

    @abstractmethod
    async def start_job(self, job: str, daemon: str) -> None:
        """Assign a job to a daemon."""

    @abstractmethod
    async def finish_job(self, job: str, error: str = "") -> None:
        """Complete a job."""


class SimulatedCoderd(Coderd):
    """The simulator, with a user like the operator's."""

    def __init__(self, server: CoderdServer) -> None:
        self.state = server.state
        self.url = server.url
        operator = User(USERNAME, ("owner",), USERNAME, "none", in_organization=False, email=EMAIL)
        self.token = self.state.add_token(operator)
        self._users: dict[str, str] = {}

    async def add_user(self, name: str, *roles: str) -> str:
        self._users[name] = self.state.add_token(User(name, roles))
        return self._users[name]

    async def suspend(self, name: str) -> None:
        self.state.revoke_token(self._users[name])
        self.state.add_token(User(name, status="suspended"), self._users[name])

    async def connect_daemon(self, name: str, tags: Mapping[str, str], seen: timedelta = timedelta()) -> str:
        now = self.state.now()
        gone: dict[str, Any] = {"created_at": now - seen, "gone_at": now - seen} if seen else {}
        return self.state.connect_daemon(name, tags=dict(tags), version="", api_version="1.0", **gone)

    async def start_job(self, job: str, daemon: str) -> None:
        self.state.queue.change_job(job, worker=daemon, started_at=self.state.now())

    async def finish_job(self, job: str, error: str = "") -> None:
        self.state.queue.finish_job(job, error)


class RealCoderd(Coderd):
    """A running coderd; a test can also use its database."""

    def __init__(self, url: str, token: str, postgres: Postgres, database: str) -> None:
        self.url = url
        self.token = token
        self.database_url = postgres.url(database)
        self._postgres = postgres
        self._database = database

    async def add_user(self, name: str, *roles: str) -> str:
        headers = {"Coder-Session-Token": self.token}
        async with aiohttp.ClientSession(f"{self.url}/api/v2/", headers=headers, raise_for_status=True) as session:
            [organization] = await (await session.get("organizations")).json()
            person = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "user_status": "active"}
            membership = {"login_type": "password", "organization_ids": [organization["id"]]}
            made = await (await session.post("users", json=person | membership)).json()
            if roles:
                await session.put(f"users/{made['id']}/roles", json={"roles": roles})
            login = {"email": person["email"], "password": PASSWORD}
            return str((await (await session.post("users/login", json=login)).json())["session_token"])

    async def suspend(self, name: str) -> None:
        await self.execute("UPDATE users SET status = 'suspended' WHERE username = $1", name)

    async def connect_daemon(self, name: str, tags: Mapping[str, str], seen: timedelta = timedelta()) -> str:
        [(identifier,)] = await self._postgres.fetch(
            CONNECT, self._database, name, json.dumps(tags), str(seen.total_seconds()), BUILT_IN_KEY
        )
        return str(identifier)

    async def start_job(self, job: str, daemon: str) -> None:
        sql = "UPDATE provisioner_jobs SET started_at = now(), worker_id = $2::text::uuid WHERE id = $1::text::uuid"
        await self.execute(sql, job, daemon)

    async def finish_job(self, job: str, error: str = "") -> None:
        sql = "UPDATE provisioner_jobs SET completed_at = now(), error = nullif($2, '') WHERE id = $1::text::uuid"
        await self.execute(sql, job, error)

    async def execute(self, sql: str, *values: str) -> None:
        """Run a statement in its database."""
        await self._postgres.execute(sql, self._database, *values)


@contextmanager
def running(version: str, postgres: Postgres, folder: Path) -> Iterator[RealCoderd]:
    """Start a coderd with a new database."""
    database, port = f"coder_{uuid4().hex}", free_port()
    asyncio.run(postgres.execute(f"CREATE DATABASE {database}"))
    url, database_url = f"http://127.0.0.1:{port}", postgres.url(database)
    settings = {
        "CODER_PG_CONNECTION_URL": database_url,
        "CODER_ACCESS_URL": url,
        "CODER_HTTP_ADDRESS": f"127.0.0.1:{port}",
        "CODER_TELEMETRY_ENABLE": "false",
        "CODER_UPDATE_CHECK": "false",
        "CODER_PROVISIONER_DAEMONS": "0",
        "CODER_DERP_SERVER_STUN_ADDRESSES": "disable",
        "CODER_CONFIG_DIR": str(folder),
        "CODER_CACHE_DIRECTORY": str(folder / "cache"),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CODER_")}
    process = Process(
        [cached(version), "server"],
        folder / "coder.log",
        lambda: answer(port, "/healthz") is not None,
        env=inherited | settings,
    )
    process.start()
    try:
        process.wait_ready(START_SECONDS)
        name = token_name("tests", version)
        grant = asyncio.run(ensure_token(database_url, name, "", now=datetime.now(UTC), rng=SystemRandom()))
        yield RealCoderd(url, grant.token, postgres, database)
    finally:
        process.stop()


@pytest.fixture(scope="session")
def real_coderd(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RealCoderd]]:
    """A function that returns the coderd of a version, which tests share. Call it in a fixture that is not async."""
    with ExitStack() as stack:
        started: dict[str, RealCoderd] = {}

        def start(version: str) -> RealCoderd:
            if version not in started:
                folder = tmp_path_factory.mktemp("coderd")
                started[version] = stack.enter_context(running(version, postgres, folder))
            return started[version]

        yield start


@pytest.fixture
def fresh_coderd(postgres: Postgres, tmp_path: Path) -> Iterator[Callable[[str], RealCoderd]]:
    """A function that starts a coderd for one test. Call it in a fixture that is not async."""
    with ExitStack() as stack:
        yield lambda version: stack.enter_context(running(version, postgres, tmp_path))
