"""Operator access by a system user and a token in coderd's database."""

import asyncio
from random import SystemRandom

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.access_db import USERNAME, ensure_token, token_name
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, assert_one_token, env, operator_tokens
from tests.support.databases import CoderdDatabase

SECRET_NAME = "demo-operator-token"


async def test_a_fresh_database_gets_a_system_user_and_a_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        condition = await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert condition.message == "The token in Secret demo-operator-token is valid until 2027-03-01"
        await demo.event("OperatorTokenIssued")
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
    [user] = await database.server.fetch(
        "SELECT username, email, login_type::text, status::text, rbac_roles, is_system FROM users", database.name
    )
    assert tuple(user) == (USERNAME, "coder-k8s-operator@coder-k8s.invalid", "none", "active", ["owner"], True)
    await assert_one_token(demo, database)
    assert (await operator_tokens(database))[0][1] == token_name(demo.key.namespace, demo.key.name)
    plane = await demo.get()
    assert plane.status.operator_access_ready
    assert plane.status.operator_token_secret_ref is not None
    assert plane.status.operator_token_secret_ref.name == SECRET_NAME
    assert (await demo.conditions())["EntitlementsKnown"] == ("True", "Checked")
    secret = await demo.find(SECRET, SECRET_NAME)
    assert secret is not None
    assert secret.controller is not None
    assert secret.controller.uid == plane.metadata.uid


async def test_user_of_an_earlier_operator_is_reused(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await ensure_token(database.url, "of-another-operator", "", now=demo.clock(), rng=SystemRandom())
    await database.server.execute("UPDATE users SET status = 'suspended', rbac_roles = '{}'", database.name)
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
    assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1
    assert len(await operator_tokens(database)) == 2
    await assert_one_token(demo, database)


@pytest.mark.parametrize(("days", "kept"), [(0, True), (334, True), (336, False), (400, False)])
async def test_a_token_is_replaced_before_it_expires(
    demo: PlaneNamespace, database: CoderdDatabase, days: int, kept: bool
) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
    first = await demo.token()
    demo.clock.advance(days=days)
    async with demo.operator() as operator:
        await operator.wait_idle()
        assert (await assert_one_token(demo, database) == first) is kept
        await operator.later(days=336)
        assert await assert_one_token(demo, database) != first
    names = {name for _, name in await operator_tokens(database)}
    own = token_name(demo.key.namespace, demo.key.name)
    assert names == {f"{own}-2" if kept else own}


async def test_token_renewal_is_scheduled(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        assert 3000 < (operator.requeue_after() or 0) <= 3600


@pytest.mark.parametrize("content", ["", "garbage", "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB", "\x00\n", "é-" * 40])
async def test_an_edited_secret_is_restored(demo: PlaneNamespace, database: CoderdDatabase, content: str) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        first = await demo.token()
        await demo.put_secret(SECRET_NAME, token=content)

        async def restored() -> bool:
            return await demo.token() not in (first, content)

        await eventually(restored)
        await operator.wait_idle()
        await assert_one_token(demo, database)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_a_token_of_another_control_plane_is_not_used(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    other = await ensure_token(database.url, token_name("team", "other"), "", now=demo.clock(), rng=SystemRandom())
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await demo.put_secret(SECRET_NAME, token=other.token)

        async def replaced() -> bool:
            return await demo.token() != other.token

        await eventually(replaced)
        await operator.wait_idle()
        await assert_one_token(demo, database)
    kept = await ensure_token(
        database.url, token_name("team", "other"), other.token, now=demo.clock(), rng=SystemRandom()
    )
    assert not kept.new


async def test_a_deleted_secret_is_created_with_a_new_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        first = await demo.token()
        await demo.delete(SECRET, SECRET_NAME)
        await eventually(demo.token)
        await operator.wait_idle()
        assert await assert_one_token(demo, database) != first


async def test_a_secret_that_lost_its_labels_keeps_its_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
    before = await operator_tokens(database)
    secret = await demo.find(SECRET, SECRET_NAME)
    assert secret is not None
    await demo.client.merge(SECRET, secret.key, {"metadata": {"labels": None}})
    async with demo.operator():
        await eventually(lambda: _is_labelled(demo), 30)
    assert await operator_tokens(database) == before
    await assert_one_token(demo, database)


async def _is_labelled(demo: PlaneNamespace) -> bool:
    secret = await demo.find(SECRET, SECRET_NAME)
    return secret is not None and bool(secret.metadata.labels)


async def test_disabled_revokes_and_enabled_issues(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        first = await demo.token()
        await demo.change(operatorAccess={"disabled": True})
        await demo.condition("OperatorAccessReady", "Disabled", "False")
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        assert await demo.find(SECRET, SECRET_NAME) is None
        assert await operator_tokens(database) == []
        await demo.event("OperatorTokenRevoked")
        plane = await demo.get()
        assert not plane.status.operator_access_ready
        assert plane.status.operator_token_secret_ref is None
        await demo.change(operatorAccess={"disabled": False})
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) != first


@pytest.mark.parametrize("secret_lost", [False, True])
async def test_disabled_retries_until_the_token_is_revoked(
    demo: PlaneNamespace, database: CoderdDatabase, secret_lost: bool
) -> None:
    async with demo.operator():
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
    if secret_lost:
        await demo.delete(SECRET, SECRET_NAME)
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    await demo.change(operatorAccess={"disabled": True})
    async with demo.operator() as operator:
        condition = await demo.condition("OperatorAccessReady", "Disabled", "False")
        assert "not revoked yet" in condition.message
        assert (await demo.conditions())["Ready"][0] == "False"
        assert (await demo.find(SECRET, SECRET_NAME) is None) is secret_lost
        await operator.reconcile()
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.reconcile()
        assert await operator_tokens(database) == []
        assert await demo.find(SECRET, SECRET_NAME) is None


async def test_disabled_from_the_start_needs_no_database(demo: PlaneNamespace) -> None:
    async with demo.operator():
        await demo.make(operatorAccess={"disabled": True})
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")


async def test_a_changed_secret_name_moves_the_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        first = await demo.token()
        await demo.change(operatorAccess={"generatedTokenSecretName": "moved"})
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        assert await demo.token("moved") == first
        assert await demo.find(SECRET, SECRET_NAME) is None
        assert [identifier for identifier, _ in await operator_tokens(database)] == [first.partition("-")[0]]
        reference = (await demo.get()).status.operator_token_secret_ref
        assert reference is not None
        assert reference.name == "moved"


async def test_a_secret_of_an_earlier_name_is_deleted(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """The token was moved, and the deletion of the old Secret failed."""
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        token = await demo.token()
        made = await demo.client.get_manifest(SECRET, Key(demo.namespace, SECRET_NAME))
        same = {name: made["metadata"][name] for name in ("labels", "ownerReferences")}
        left = {"namespace": demo.namespace, "name": "left", **same}
        await demo.client.create(SECRET, {"metadata": left, "data": made["data"]})

        async def removed() -> bool:
            return await demo.find(SECRET, "left") is None

        await eventually(removed, 30)
        await operator.wait_idle()
        assert await assert_one_token(demo, database) == token


async def test_two_control_planes_share_a_database(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        other = {"namespace": demo.namespace, "name": "other"}
        await demo.client.create(CONTROL_PLANE, {"metadata": other, "spec": {"extraEnv": env(database.url)}})
        first, second = await eventually(demo.token), await eventually(lambda: demo.token("other-operator-token"))
        await operator.wait_idle()
        assert {identifier for identifier, _ in await operator_tokens(database)} == {
            token.partition("-")[0] for token in (first, second)
        }
        assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1
        await demo.change(operatorAccess={"disabled": True})
        await demo.condition("OperatorAccessReady", "Disabled")
        assert [identifier for identifier, _ in await operator_tokens(database)] == [second.partition("-")[0]]
        assert await demo.token("other-operator-token") == second


async def test_two_concurrent_operators_use_one_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """A suspended process continues after another became the leader."""
    async with demo.operator() as one, demo.operator() as two:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")

        async def agreed() -> bool:
            await asyncio.gather(one.reconcile(), two.reconcile())
            await assert_one_token(demo, database)
            return True

        await eventually(agreed)
        token = await demo.token()
        await asyncio.gather(one.reconcile(), two.reconcile())
        assert await assert_one_token(demo, database) == token
    assert len(await database.server.fetch("SELECT id FROM users", database.name)) == 1
