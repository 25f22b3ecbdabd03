"""The operator's way into coderd: by a user of its own in coderd's database, or by a token that it is given."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.access_db import USERNAME, ensure_token, token_name
from coder_k8s.controllers.controlplane.database import URLMissing, connection_url
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Manifest
from tests.coderd_server import User
from tests.support import eventually
from tests.support.coderd import Gate, Site, site
from tests.support.databases import VERSIONS, CoderdDatabase, create_database
from tests.support.postgres import Postgres

SECRET_NAME = "demo-operator-token"
VARIABLE = "CODER_PG_CONNECTION_URL"


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    return await create_database(postgres, "2.36.1")


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[Site]:
    async with site(cluster.kubeconfig, operator_kubeconfig, namespace, database_url=database.url) as place:
        yield place


@pytest.fixture
async def without_database(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[Site]:
    async with site(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        yield place


def env(url: str) -> list[Manifest]:
    return [{"name": VARIABLE, "value": url}]


async def tokens(database: CoderdDatabase) -> list[tuple[str, str]]:
    """Id and name of the operator's tokens."""
    rows = await database.server.fetch(
        "SELECT api_keys.id, token_name FROM api_keys JOIN users ON users.id = user_id WHERE username = $1 ORDER BY 2",
        database.name,
        USERNAME,
    )
    return [(row[0], row[1]) for row in rows]


async def assert_one_token(demo: Site, database: CoderdDatabase) -> str:
    """The Secret holds the only token that the database has for this control plane, and coderd accepts it."""
    token = await demo.token()
    own = token_name(*demo.key)
    found = [identifier for identifier, name in await tokens(database) if name in (own, f"{own}-2")]
    assert found == [token.partition("-")[0]]
    return token


async def test_a_fresh_database_gets_a_system_user_and_a_token(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        condition = await demo.told("OperatorAccessReady", "TokenReady", "True")
        assert condition.message == ""
        await demo.event("OperatorTokenIssued")
        await demo.serve()
        await demo.told("Ready", "AllPartsReady", "True")
    [user] = await database.server.fetch(
        "SELECT username, email, login_type::text, status::text, rbac_roles, is_system FROM users", database.name
    )
    assert tuple(user) == (USERNAME, "coder-k8s-operator@coder-k8s.invalid", "none", "active", ["owner"], True)
    await assert_one_token(demo, database)
    assert (await tokens(database))[0][1] == token_name(*demo.key)
    plane = await demo.plane()
    assert plane.status.operator_access_ready
    assert plane.status.operator_token_secret_ref is not None
    assert plane.status.operator_token_secret_ref.name == SECRET_NAME
    assert (await demo.conditions())["EntitlementsKnown"] == ("True", "Checked")
    secret = await demo.find(SECRET, SECRET_NAME)
    assert secret is not None
    assert secret.controller is not None
    assert secret.controller.uid == plane.metadata.uid


async def test_access_waits_for_the_migrations(demo: Site, postgres: Postgres) -> None:
    empty = await create_database(postgres, "template0")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(empty.url))
        await demo.told("OperatorAccessReady", "Pending", "Unknown")
        assert (await demo.conditions())["Stalled"][0] == "False"
        await operator.settle()
        assert 29 < (operator.look_again() or 0) <= 30
        for script in VERSIONS["2.36.1"]:
            await postgres.execute(script.read_text(), empty.name)
        await operator.look()
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_a_user_of_an_earlier_operator_is_used_again(demo: Site, database: CoderdDatabase) -> None:
    await ensure_token(database.url, "of-another-operator", "", now=demo.clock(), rng=SystemRandom())
    await database.server.execute("UPDATE users SET status = 'suspended', rbac_roles = '{}'", database.name)
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.serve()
        await demo.told("EntitlementsKnown", "Checked", "True")
    assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1
    assert len(await tokens(database)) == 2
    await assert_one_token(demo, database)


async def test_a_human_of_that_name_is_left_alone(demo: Site, database: CoderdDatabase) -> None:
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
        await demo.told("OperatorAccessReady", "UsernameTaken", "False")
        await demo.told("Stalled", "UsernameTaken", "True")
        await demo.event("OperatorAccessFailed")
        await operator.later(seconds=31)
        assert await database.server.fetch("SELECT users::text FROM users", database.name) == before
        assert await database.server.fetch("SELECT id FROM api_keys", database.name) == []
        assert await demo.find(SECRET, SECRET_NAME) is None
        await database.server.execute("UPDATE users SET username = 'ada'", database.name)
        await operator.later(seconds=31)
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        await demo.told("Stalled", "Progressing", "False")


@pytest.mark.parametrize(("days", "kept"), [(0, True), (334, True), (336, False), (400, False)])
async def test_a_token_is_replaced_before_it_expires(
    demo: Site, database: CoderdDatabase, days: int, kept: bool
) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
    first = await demo.token()
    demo.clock.advance(days=days)
    async with demo.operator() as operator:
        await operator.settle()
        assert (await assert_one_token(demo, database) == first) is kept
        await operator.later(days=336)
        assert await assert_one_token(demo, database) != first
    names = {name for _, name in await tokens(database)}
    own = token_name(*demo.key)
    assert names == {f"{own}-2" if kept else own}


async def test_a_token_is_renewed_while_nothing_else_happens(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        await operator.settle()
        assert 3000 < (operator.look_again() or 0) <= 3600


@pytest.mark.parametrize("content", ["", "garbage", "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB", "\x00\n", "é-" * 40])
async def test_a_secret_that_was_edited_is_mended(demo: Site, database: CoderdDatabase, content: str) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        await operator.settle()
        first = await demo.token()
        await demo.put_secret(SECRET_NAME, token=content)

        async def mended() -> bool:
            return await demo.token() not in (first, content)

        await eventually(mended)
        await operator.settle()
        await assert_one_token(demo, database)
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_a_token_of_another_control_plane_is_not_used(demo: Site, database: CoderdDatabase) -> None:
    other = await ensure_token(database.url, token_name("team", "other"), "", now=demo.clock(), rng=SystemRandom())
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        await demo.put_secret(SECRET_NAME, token=other.token)

        async def replaced() -> bool:
            return await demo.token() != other.token

        await eventually(replaced)
        await operator.settle()
        await assert_one_token(demo, database)
    kept = await ensure_token(
        database.url, token_name("team", "other"), other.token, now=demo.clock(), rng=SystemRandom()
    )
    assert not kept.new


async def test_a_secret_that_was_deleted_comes_back_with_a_new_token(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        first = await demo.token()
        await demo.delete(SECRET, SECRET_NAME)
        await eventually(demo.token)
        await operator.settle()
        assert await assert_one_token(demo, database) != first


async def test_a_secret_of_somebody_else_is_left_alone(demo: Site, database: CoderdDatabase) -> None:
    await demo.put_secret(SECRET_NAME, token="mine")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "SecretUnavailable", "False")
        await demo.told("Stalled", "SecretUnavailable", "True")
        assert await demo.token() == "mine"
        assert await tokens(database) == []
        await demo.delete(SECRET, SECRET_NAME)

        async def made() -> bool:
            await operator.look()
            return bool(await demo.token())

        await eventually(made)
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_nothing_is_rotated_while_the_database_is_down(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
    first = await demo.token()
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    async with demo.operator() as operator:
        await demo.told("OperatorAccessReady", "DatabaseUnreachable", "False")
        plane = await demo.plane()
        assert not plane.status.operator_access_ready
        assert plane.status.operator_token_secret_ref is not None, "the Secret is still where it was"
        assert await demo.token() == first
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.later(seconds=31)
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) == first


@pytest.mark.parametrize("version", ["2.30.0", "2.36.1"])
async def test_coderd_without_its_database_condemns_no_token(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres, version: str
) -> None:
    """2.30.0 answers 401 then, which looks like a dead token."""
    database = await create_database(postgres, version)
    async with (
        site(cluster.kubeconfig, operator_kubeconfig, namespace, version=version, database_url=database.url) as demo,
        demo.operator() as operator,
    ):
        await demo.make(extraEnv=env(database.url))
        await demo.serve()
        await demo.told("EntitlementsKnown", "Checked", "True")
        first = await demo.token()
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
        await operator.later(seconds=121)
        await demo.told("EntitlementsKnown", "Error", "False")
        assert (await demo.conditions())["OperatorAccessReady"] == ("True", "TokenReady")
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.later(seconds=31)
        await demo.told("EntitlementsKnown", "Checked", "True")
        assert await assert_one_token(demo, database) == first


async def test_a_token_that_somebody_deleted_is_made_anew(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.serve()
        await demo.told("EntitlementsKnown", "Checked", "True")
        first = await demo.token()
        await database.server.execute("DELETE FROM api_keys", database.name)
        await operator.later(seconds=121)
        await demo.told("EntitlementsKnown", "Forbidden", "False")
        await operator.later(seconds=31)
        await demo.told("EntitlementsKnown", "Checked", "True")
        assert await assert_one_token(demo, database) != first


async def test_a_wrong_password_is_told_and_mended_at_once(demo: Site, database: CoderdDatabase) -> None:
    wrong = database.server.url(database.name, "coder", "hunter2-not-this")
    await demo.put_secret("database", url=wrong)
    reference = {"secretKeyRef": {"name": "database", "key": "url"}}
    async with demo.operator():
        await demo.make(extraEnv=[{"name": VARIABLE, "valueFrom": reference}])
        condition = await demo.told("OperatorAccessReady", "DatabaseUnreachable", "False")
        assert "password" in condition.message
        assert "hunter2" not in condition.message
        await demo.put_secret("database", url=database.url)
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_a_hung_database_hangs_nothing_else(demo: Site, database: CoderdDatabase) -> None:
    async with Gate(database.server.port) as gate, demo.operator() as operator:
        gate.closed = True
        await demo.make(extraEnv=env(database.url.replace(str(database.server.port), str(gate.port))))
        assert await eventually(lambda: demo.find(DEPLOYMENT, "demo"), 3)
        await demo.told("OperatorAccessReady", "DatabaseUnreachable", within=20)
        await operator.settle()
        assert gate.visits == 1
        for _ in range(5):
            await operator.look()
        assert gate.visits == 1, "it is left alone for a while, whatever else happens"
        assert 20 < (operator.look_again() or 0) <= 30
        gate.closed = False
        await operator.later(seconds=31)
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_one_transaction_an_hour_is_enough(demo: Site, database: CoderdDatabase) -> None:
    async with Gate(database.server.port) as gate:
        async with demo.operator() as operator:
            await demo.make(extraEnv=env(database.url.replace(str(database.server.port), str(gate.port))))
            await demo.serve()
            await demo.told("Ready", "AllPartsReady", "True")
            await operator.settle()
            assert gate.visits == 1
            for _ in range(29):
                await operator.later(minutes=2)
            assert gate.visits == 1
            await operator.later(minutes=3)
            assert gate.visits == 2
        async with demo.operator() as operator:
            await operator.settle()
            assert gate.visits == 3


async def test_disabled_revokes_and_enabled_issues(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.serve()
        await demo.told("Ready", "AllPartsReady", "True")
        first = await demo.token()
        await demo.change(operatorAccess={"disabled": True})
        await demo.told("OperatorAccessReady", "Disabled", "False")
        await demo.told("Ready", "AllPartsReady", "True")
        await operator.settle()
        assert await demo.find(SECRET, SECRET_NAME) is None
        assert await tokens(database) == []
        await demo.event("OperatorTokenRevoked")
        plane = await demo.plane()
        assert not plane.status.operator_access_ready
        assert plane.status.operator_token_secret_ref is None
        await demo.change(operatorAccess={"disabled": False})
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) != first


@pytest.mark.parametrize("secret_lost", [False, True])
async def test_disabled_goes_on_until_the_token_is_revoked(
    demo: Site, database: CoderdDatabase, secret_lost: bool
) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
    if secret_lost:
        await demo.delete(SECRET, SECRET_NAME)
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    await demo.change(operatorAccess={"disabled": True})
    async with demo.operator() as operator:
        condition = await demo.told("OperatorAccessReady", "Disabled", "False")
        assert "not revoked yet" in condition.message
        assert (await demo.conditions())["Ready"][0] == "False"
        assert (await demo.find(SECRET, SECRET_NAME) is None) is secret_lost
        await operator.look()
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.look()
        assert await tokens(database) == []
        assert await demo.find(SECRET, SECRET_NAME) is None


async def test_disabled_from_the_start_needs_no_database(without_database: Site) -> None:
    demo = without_database
    async with demo.operator():
        await demo.make(operatorAccess={"disabled": True})
        await demo.serve()
        await demo.told("Ready", "AllPartsReady", "True")


async def test_another_name_for_the_secret_moves_the_token(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        first = await demo.token()
        await demo.change(operatorAccess={"generatedTokenSecretName": "moved"})
        await demo.told("OperatorAccessReady", "TokenReady", "True")
        await operator.settle()
        assert await demo.token("moved") == first
        assert await demo.find(SECRET, SECRET_NAME) is None
        assert [identifier for identifier, _ in await tokens(database)] == [first.partition("-")[0]]
        reference = (await demo.plane()).status.operator_token_secret_ref
        assert reference is not None
        assert reference.name == "moved"


async def test_two_control_planes_share_a_database(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        other = {"namespace": demo.key.namespace, "name": "other"}
        await demo.client.create(CONTROL_PLANE, {"metadata": other, "spec": {"extraEnv": env(database.url)}})
        first, second = await eventually(demo.token), await eventually(lambda: demo.token("other-operator-token"))
        await operator.settle()
        assert {identifier for identifier, _ in await tokens(database)} == {
            token.partition("-")[0] for token in (first, second)
        }
        assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1
        await demo.change(operatorAccess={"disabled": True})
        await demo.told("OperatorAccessReady", "Disabled")
        assert [identifier for identifier, _ in await tokens(database)] == [second.partition("-")[0]]
        assert await demo.token("other-operator-token") == second


async def test_two_operators_at_once_agree(demo: Site, database: CoderdDatabase) -> None:
    """As when a paused process wakes up after another has taken over."""
    async with demo.operator() as one, demo.operator() as two:
        await demo.make(extraEnv=env(database.url))
        await demo.told("OperatorAccessReady", "TokenReady", "True")

        async def agreed() -> bool:
            await asyncio.gather(one.look(), two.look())
            await assert_one_token(demo, database)
            return True

        await eventually(agreed)
        token = await demo.token()
        await asyncio.gather(one.look(), two.look())
        assert await assert_one_token(demo, database) == token
    assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1


async def test_a_given_token_is_checked_and_used(without_database: Site) -> None:
    demo = without_database
    await demo.put_secret("given", token=f" {demo.coderd.state.token}\n")
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.told("OperatorAccessReady", "Pending", "Unknown")
        await demo.serve()
        await demo.told("Ready", "AllPartsReady", "True")
        await operator.settle()
        reference = (await demo.plane()).status.operator_token_secret_ref
        assert reference is not None
        assert (reference.name, reference.key) == ("given", "token")
        assert await demo.find(SECRET, SECRET_NAME) is None
        checks = demo.coderd.state.count("GET", "/api/v2/users/me")
        assert checks == 1
        await operator.look()
        assert demo.coderd.state.count("GET", "/api/v2/users/me") == 1


async def test_a_given_token_that_coderd_refuses_waits_for_somebody(without_database: Site) -> None:
    demo = without_database
    await demo.put_secret("given", token="AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB")
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.serve()
        condition = await demo.told("OperatorAccessReady", "TokenRejected", "False")
        assert "given" in condition.message
        assert "BBBB" not in condition.message
        await demo.told("Stalled", "TokenRejected", "True")
        await demo.put_secret("given", token=demo.coderd.state.token)
        await demo.told("Ready", "AllPartsReady", "True")


async def test_a_given_token_of_a_suspended_user_is_refused(without_database: Site) -> None:
    demo = without_database
    token = demo.coderd.state.add_token(User("former", ("owner",), status="suspended"))
    await demo.put_secret("given", token=token)
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.serve()
        await demo.told("OperatorAccessReady", "TokenRejected", "False")


@pytest.mark.parametrize("content", [None, {}, {"other": "x"}, {"token": " \n"}])
async def test_a_given_token_that_is_not_there_waits_for_its_secret(
    without_database: Site, content: dict[str, str] | None
) -> None:
    demo = without_database
    if content is not None:
        await demo.put_secret("given", **content)
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.serve()
        await demo.told("OperatorAccessReady", "SecretUnavailable", "False")
        await demo.told("Stalled", "SecretUnavailable", "True")
        await demo.put_secret("given", token=demo.coderd.state.token)
        await demo.told("Ready", "AllPartsReady", "True")


async def test_a_given_token_is_rotated(without_database: Site) -> None:
    demo = without_database
    first = demo.coderd.state.token
    await demo.put_secret("given", token=first)
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.serve()
        await demo.told("Ready", "AllPartsReady", "True")
        demo.coderd.state.revoke_token(first)
        await operator.later(seconds=121)
        await demo.told("EntitlementsKnown", "Forbidden", "False")
        await operator.look()
        await demo.told("OperatorAccessReady", "TokenRejected", "False")
        await demo.put_secret("given", token=demo.coderd.state.add_token(demo.coderd.state.owner))
        await demo.told("OperatorAccessReady", "TokenReady", "True")


async def test_a_given_token_is_not_doubted_while_coderd_is_in_trouble(without_database: Site) -> None:
    demo = without_database
    await demo.put_secret("given", token=demo.coderd.state.token)
    demo.coderd.state.set(failing=True)
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.serve()

        async def tried() -> bool:
            return "could not be checked" in (await demo.told("OperatorAccessReady", "Pending", "Unknown")).message

        await eventually(tried)
        demo.coderd.state.set(failing=False)
        await operator.later(seconds=31)
        await demo.told("Ready", "AllPartsReady", "True")


PLAIN = {"name": VARIABLE, "value": "plain"}
FROM_SECRET = {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "one", "key": "url"}}}
FROM_CONFIG_MAP = {"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "two", "key": "url"}}}
FROM_FIELD = {"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"extraEnv": [{"name": "A", "value": "a"}, PLAIN]}, "plain"),
        ({"extraEnv": [FROM_SECRET]}, "of one"),
        ({"extraEnv": [FROM_CONFIG_MAP]}, "of two"),
        ({"envFrom": [{"secretRef": {"name": "all"}}]}, "of all"),
        ({"envFrom": [{"configMapRef": {"name": "short"}, "prefix": "CODER_"}]}, "of short"),
        ({"envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "short"}}]}, "of all"),
        (
            {"envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "short"}, "prefix": "CODER_"}]},
            "of short",
        ),
        ({"extraEnv": [PLAIN], "envFrom": [{"secretRef": {"name": "all"}}]}, "plain"),
        ({}, "neither"),
        ({"envFrom": [{"secretRef": {"name": "missing", "optional": True}}]}, "neither"),
        ({"extraEnv": [PLAIN, FROM_SECRET]}, "more than once"),
        ({"extraEnv": [{"name": VARIABLE, "value": ""}]}, "without a value"),
        ({"extraEnv": [FROM_FIELD]}, "without a value"),
        (
            {"extraEnv": [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "one", "key": "absent"}}}]},
            "no key absent in Secret one",
        ),
        (
            {"extraEnv": [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "absent", "key": "url"}}}]},
            "no key url in Secret absent",
        ),
    ],
)
async def test_where_the_database_is(without_database: Site, spec: dict[str, Any], found: str) -> None:
    demo = without_database
    namespace = demo.key.namespace
    await demo.put_secret("one", url="of one")
    await demo.put_secret("all", **{VARIABLE: "of all", "OTHER": "x"})
    for name, data in (("two", {"url": "of two"}), ("short", {"PG_CONNECTION_URL": "of short"})):
        await demo.client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": name}, "data": data})
    await demo.make(**spec)
    try:
        answer = await connection_url(demo.client, await demo.plane())
    except URLMissing as missing:
        answer = str(missing)
    assert found in answer
    assert (found in ("plain", "of one", "of two", "of all", "of short")) == (answer == found)


async def test_a_database_that_nobody_names_waits_for_somebody(demo: Site, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(envFrom=[{"secretRef": {"name": "database"}}])
        await demo.told("OperatorAccessReady", "DatabaseURLMissing", "False")
        await demo.told("Stalled", "DatabaseURLMissing", "True")
        await demo.put_secret("database", **{VARIABLE: database.url})
        await demo.told("OperatorAccessReady", "TokenReady", "True")
