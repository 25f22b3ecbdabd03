"""Errors of operator access by coderd's database."""

import logging
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import free_port
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.controlplanes import (
    CONNECTION_URL,
    PlaneNamespace,
    assert_one_token,
    env,
    operator_tokens,
    plane_namespace,
)
from tests.support.databases import VERSIONS, CoderdDatabase, create_database
from tests.support.gate import Gate
from tests.support.policies import QUOTA, forbid

SECRET_NAME = "demo-operator-token"
SECRET_LENGTH = 22


class Issued(SystemRandom):
    """A random number generator that records the secret part of every token."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: list[str] = []

    def choices(self, population: Any, *arguments: Any, k: int = 1, **more: Any) -> list[Any]:
        chosen = super().choices(population, *arguments, k=k, **more)
        if k == SECRET_LENGTH:
            self.secrets.append("".join(chosen))
        return chosen


async def test_access_waits_for_the_migrations(demo: PlaneNamespace, postgres: Postgres) -> None:
    empty = await create_database(postgres, "template0")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(empty.url))
        await demo.condition("OperatorAccessReady", "Pending", "Unknown")
        assert (await demo.conditions())["Stalled"][0] == "False"
        await operator.wait_idle()
        assert 29 < (operator.requeue_after() or 0) <= 30
        for script in VERSIONS["2.36.1"]:
            await postgres.execute(script.read_text(), empty.name)
        await operator.reconcile()
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_an_unreachable_database_is_retried_in_time(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """Other reconciles in between do not delay the retry."""
    unreachable = database.url.replace(f":{database.server.port}/", f":{free_port()}/")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(unreachable))
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        await operator.later(seconds=20)
        assert 0 < (operator.requeue_after() or 0) <= 10


async def test_a_human_user_of_that_name_is_not_changed(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await database.server.execute(
        """
        INSERT INTO users (id, email, username, hashed_password, created_at, updated_at, status, rbac_roles, login_type)
        VALUES (gen_random_uuid(), 'ada@example.com', 'Coder-K8s-Operator', 'x', now(), now(), 'active', '{}', 'oidc')
        """,
        database.name,
    )
    before = await database.server.fetch("SELECT users::text FROM users", database.name)
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "UsernameTaken", "False")
        await demo.condition("Stalled", "UsernameTaken", "True")
        await demo.event("UsernameTaken")
        await operator.later(seconds=31)
        assert await database.server.fetch("SELECT users::text FROM users", database.name) == before
        assert await database.server.fetch("SELECT id FROM api_keys", database.name) == []
        assert await demo.find(SECRET, SECRET_NAME) is None
        await database.server.execute("UPDATE users SET username = 'ada'", database.name)
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await demo.condition("Stalled", "Progressing", "False")


async def test_a_secret_of_another_owner_is_not_changed(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await demo.put_secret(SECRET_NAME, token="mine")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "SecretUnavailable", "False")
        await demo.condition("Stalled", "SecretUnavailable", "True")
        assert await demo.token() == "mine"
        assert await operator_tokens(database) == []
        await demo.delete(SECRET, SECRET_NAME)

        async def made() -> bool:
            await operator.reconcile()
            return bool(await demo.token())

        await eventually(made)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_a_secret_over_quota_leaves_no_token(
    demo: PlaneNamespace, database: CoderdDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """No token is left in the database and none is logged; when the quota allows it, one is created."""
    caplog.set_level(logging.DEBUG)
    quota = await forbid(demo.client, demo.namespace, "count/secrets")
    issued = Issued()
    async with demo.operator(rng=issued) as operator:
        await demo.make(extraEnv=env(database.url))
        refused = await demo.condition("OperatorAccessReady", "SecretUnavailable", "False")
        assert "exceeded quota" in refused.message
        await demo.condition("Stalled", "SecretUnavailable", "True")
        for _ in range(3):
            await operator.later(seconds=31)
            assert await operator_tokens(database) == []
        assert len(issued.secrets) == 4
        texts = [caplog.text, str((await demo.get()).status), str(await demo.events()), operator.metrics()]
        assert not [secret for secret in issued.secrets for text in texts if secret in text]

        await demo.client.delete(QUOTA, quota, unchanged=False)
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await demo.condition("Stalled", "Progressing", "False")
        await assert_one_token(demo, database)


async def test_a_rejected_renewal_keeps_the_current_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """The Secret is immutable: its token stays in use, and no token is created that cannot be stored."""
    issued = Issued()
    async with demo.operator(rng=issued) as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        first = await demo.token()
        await demo.client.merge(SECRET, Key(demo.namespace, SECRET_NAME), {"immutable": True})
        await operator.later(days=336)
        for _ in range(3):
            refused = await demo.condition("OperatorAccessReady", "TokenReady", "True")
            assert "not renewed" in refused.message
            assert "immutable" in refused.message
            assert (await demo.get()).status.operator_access_ready
            assert await assert_one_token(demo, database) == first
            await operator.later(seconds=31)
        assert len(issued.secrets) == 1
        await demo.delete(SECRET, SECRET_NAME)
        await eventually(demo.token)
        await operator.wait_idle()
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) != first


async def test_nothing_is_rotated_while_the_database_is_down(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
    first = await demo.token()
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    async with demo.operator() as operator:
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        plane = await demo.get()
        assert not plane.status.operator_access_ready
        assert plane.status.operator_token_secret_ref is not None, "the Secret still exists"
        assert await demo.token() == first
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) == first


@pytest.mark.parametrize("version", ["2.30.0", "2.36.1"])
async def test_coderd_without_its_database_invalidates_no_token(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres, version: str
) -> None:
    """2.30.0 responds with 401 then, like for a deleted token."""
    database = await create_database(postgres, version)
    async with (
        plane_namespace(
            cluster.kubeconfig, operator_kubeconfig, namespace, version=version, database_url=database.url
        ) as demo,
        demo.operator() as operator,
    ):
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        first = await demo.token()
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
        await operator.later(seconds=121)
        await demo.condition("EntitlementsKnown", "Error", "False")
        assert (await demo.conditions())["OperatorAccessReady"] == ("True", "TokenReady")
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.later(seconds=31)
        await demo.condition("EntitlementsKnown", "Checked", "True")
        assert await assert_one_token(demo, database) == first


async def test_a_deleted_token_is_created_again(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        first = await demo.token()
        await database.server.execute("DELETE FROM api_keys", database.name)
        await operator.later(seconds=121)
        await demo.condition("EntitlementsKnown", "Forbidden", "False")
        await operator.later(seconds=31)
        await demo.condition("EntitlementsKnown", "Checked", "True")
        assert await assert_one_token(demo, database) != first


async def test_a_wrong_password_is_reported_until_it_is_corrected(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    wrong = database.server.url(database.name, "coder", "hunter2-not-this")
    await demo.put_secret("database", url=wrong)
    reference = {"secretKeyRef": {"name": "database", "key": "url"}}
    async with demo.operator():
        await demo.make(extraEnv=[{"name": CONNECTION_URL, "valueFrom": reference}])
        condition = await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        assert condition.message == (
            "PostgreSQL at 127.0.0.1 rejects the user or the password (SQLSTATE 28P01); check CODER_PG_CONNECTION_URL"
        )
        await demo.put_secret("database", url=database.url)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


@pytest.mark.slow
async def test_a_hanging_database_blocks_nothing_else(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with Gate(database.server.port) as gate, demo.operator() as operator:
        gate.closed = True
        await demo.make(extraEnv=env(database.url.replace(str(database.server.port), str(gate.port))))
        assert await eventually(lambda: demo.find(DEPLOYMENT, "demo"), 3)
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", within=20)
        await operator.wait_idle()
        assert gate.connections == 1
        for _ in range(5):
            await operator.reconcile()
        assert gate.connections == 1, "other reconciles open no connection"
        assert 20 < (operator.requeue_after() or 0) <= 30
        gate.closed = False
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_the_database_is_queried_once_an_hour(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with Gate(database.server.port) as gate:
        async with demo.operator() as operator:
            await demo.make(extraEnv=env(database.url.replace(str(database.server.port), str(gate.port))))
            await demo.roll_out()
            await demo.condition("Ready", "AllReady", "True")
            await operator.wait_idle()
            assert gate.connections == 1
            for _ in range(29):
                await operator.later(minutes=2)
            assert gate.connections == 1
            await operator.later(minutes=3)
            assert gate.connections == 2
        async with demo.operator() as operator:
            await operator.wait_idle()
            assert gate.connections == 3


async def test_a_missing_database_url_stalls(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(envFrom=[{"secretRef": {"name": "database"}}])
        await demo.condition("OperatorAccessReady", "DatabaseURLMissing", "False")
        await demo.condition("Stalled", "DatabaseURLMissing", "True")
        await demo.put_secret("database", **{CONNECTION_URL: database.url})
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
