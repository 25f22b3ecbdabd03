"""Revocation of the generated token, and the finalizer that waits for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.dev.processes import free_port
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens
from tests.support.databases import CoderdDatabase
from tests.support.gate import Gate
from tests.support.operators import Operator

SECRET_NAME = "demo-operator-token"
GROUP = "admissionregistration.k8s.io"
POLICY = Kind(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Unstructured, namespaced=False)
BINDING = Kind(
    GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", Unstructured, namespaced=False
)
NOWHERE = "postgres://coder:coder@127.0.0.1:{}/coder"


async def with_access(demo: PlaneNamespace, database: CoderdDatabase, operator: Operator) -> str:
    await demo.make(extraEnv=env(database.url))
    await demo.roll_out()
    await demo.condition("Ready", "AllReady", "True")
    await operator.wait_idle()
    return await demo.token()


async def is_gone(demo: PlaneNamespace) -> bool:
    try:
        await demo.get()
    except errors.NotFound:
        return True
    return False


@asynccontextmanager
async def policy_against_deletion(demo: PlaneNamespace) -> AsyncIterator[None]:
    """An admission policy that forbids the deletion of Secrets in the namespace."""
    name = f"keep-{demo.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["*"], "resources": ["secrets"], "operations": ["DELETE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": demo.namespace}}
    spec: dict[str, Any] = {
        "matchConstraints": {"namespaceSelector": here, "resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "secrets stay"}],
    }
    await demo.client.create(POLICY, {"metadata": {"name": name}, "spec": spec})
    spec = {"policyName": name, "validationActions": ["Deny"]}
    await demo.client.create(BINDING, {"metadata": {"name": name}, "spec": spec})

    async def is_rejected() -> bool:
        await demo.put_secret("probe", key="value")
        try:
            await demo.delete(SECRET, "probe")
        except (errors.Forbidden, errors.Invalid):
            return True
        return False

    await eventually(is_rejected, 30)
    yield
    for kind in (BINDING, POLICY):
        await demo.client.delete(kind, await demo.client.get(kind, Key("", name)), unchanged=False)


async def test_a_secret_with_a_foreign_finalizer_is_revoked_once(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    async with Gate(database.server.port) as gate, demo.operator() as operator:
        await demo.make(extraEnv=env(database.url.replace(str(database.server.port), str(gate.port))))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        key = Key(demo.namespace, SECRET_NAME)
        await demo.client.merge(SECRET, key, {"metadata": {"finalizers": ["example.com/backup"]}})
        await operator.wait_idle()
        connections = gate.connections
        await demo.change(operatorAccess={"disabled": True})
        await demo.condition("OperatorAccessReady", "Disabled", "False")
        await eventually(lambda: is_free(demo))
        await operator.wait_idle()
        assert (await demo.get()).status.operator_token_secret_ref is None
        for _ in range(3):
            await operator.reconcile()
        assert gate.connections == connections + 1
        assert "series" not in await demo.event("OperatorTokenRevoked")
        assert await operator_tokens(database) == []
        await demo.client.merge(SECRET, key, {"metadata": {"finalizers": None}})


async def is_free(demo: PlaneNamespace) -> bool:
    return not (await demo.get()).metadata.finalizers


async def test_a_secret_that_cannot_be_deleted_does_not_block_deletion(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    """Garbage collection deletes it later, and its token is revoked."""
    async with demo.operator() as operator:
        await with_access(demo, database, operator)
        async with policy_against_deletion(demo):
            await demo.delete(CONTROL_PLANE, "demo")
            await eventually(lambda: is_gone(demo))
            await operator.wait_idle()
        assert await operator_tokens(database) == []
        event = await demo.event("CleanupGivenUp")
        assert SECRET_NAME in event["note"]
        assert "secrets stay" in event["note"]


@pytest.mark.parametrize("access", [{"disabled": True}, {"tokenSecretRef": {"name": "given"}}], ids=["off", "given"])
async def test_a_secret_that_cannot_be_deleted_is_reported(
    demo: PlaneNamespace, database: CoderdDatabase, access: dict[str, Any]
) -> None:
    await demo.put_secret("given", token=demo.coderd.state.token)
    async with demo.operator() as operator:
        await with_access(demo, database, operator)
        async with policy_against_deletion(demo):
            await demo.change(operatorAccess=access)

            async def named() -> bool:
                plane = await demo.get()
                [condition] = [each for each in plane.status.conditions if each.type == "OperatorAccessReady"]
                assert condition.observed_generation == plane.metadata.generation
                return f"Secret {SECRET_NAME} cannot be deleted: " in condition.message

            await eventually(named)
            await operator.wait_idle()
            assert await operator_tokens(database) == []
            assert 0 < (operator.requeue_after() or 0) <= 30

        async def retried() -> bool:
            await operator.later(seconds=31)
            return await is_free(demo)

        await eventually(retried)  # the API server applies the change of the policy with a delay
        assert await demo.find(SECRET, SECRET_NAME) is None


@pytest.mark.parametrize("reason", ["DatabaseUnreachable", "UsernameTaken", "DatabaseURLMissing"])
async def test_without_a_token_deletion_does_not_wait(
    demo: PlaneNamespace, database: CoderdDatabase, reason: str
) -> None:
    """The most common mistakes: a wrong host, no URL, a human user of the operator's name."""
    await database.server.execute(
        """
        INSERT INTO users (id, email, username, hashed_password, created_at, updated_at, status, rbac_roles, login_type)
        VALUES (gen_random_uuid(), 'a@example.com', 'coder-k8s-operator', 'x', now(), now(), 'active', '{}', 'oidc')
        """,
        database.name,
    )
    url = {"DatabaseUnreachable": NOWHERE.format(free_port()), "UsernameTaken": database.url}.get(reason)
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(url) if url else [])
        await demo.condition("OperatorAccessReady", reason, "False")
        await operator.wait_idle()
        assert (await demo.get()).metadata.finalizers == []
        await demo.delete(CONTROL_PLANE, "demo")
        await operator.wait_idle()
        assert await is_gone(demo)
        assert await demo.events("CleanupGivenUp") == []


async def test_a_user_name_of_a_human_does_not_block_deletion(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """The operator's user and its tokens were deleted, so there is nothing to revoke."""
    async with demo.operator() as operator:
        await with_access(demo, database, operator)
        await database.server.execute("DELETE FROM api_keys", database.name)
        await database.server.execute("UPDATE users SET is_system = false, login_type = 'oidc'", database.name)
        await demo.delete(CONTROL_PLANE, "demo")
        await eventually(lambda: is_gone(demo))
        await operator.wait_idle()
        assert await demo.events("CleanupGivenUp") == []


async def test_a_change_of_the_given_secret_revokes_nothing(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """kustomize names a Secret after its content; the database is not reachable."""
    for name in ("given-1", "given-2"):
        await demo.put_secret(name, token=demo.coderd.state.token)
    async with demo.operator() as operator:
        access = {"tokenSecretRef": {"name": "given-1"}}
        await demo.make(extraEnv=env(NOWHERE.format(free_port())), operatorAccess=access)
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.change(operatorAccess={"tokenSecretRef": {"name": "given-2"}})
        condition = await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert condition.message == "Coder accepts the token in Secret given-2, of user admin"
        await operator.wait_idle()
        plane = await demo.get()
        assert plane.metadata.finalizers == []
        assert plane.status.operator_token_secret_ref is not None
        assert plane.status.operator_token_secret_ref.name == "given-2"
        await demo.delete(CONTROL_PLANE, "demo")
        await operator.wait_idle()
        assert await is_gone(demo)
        assert await demo.events("CleanupGivenUp") == []


async def test_a_generated_token_that_is_given_is_revoked_with_its_control_plane(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    async with demo.operator() as operator:
        await with_access(demo, database, operator)
        await demo.change(operatorAccess={"tokenSecretRef": {"name": SECRET_NAME}})
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        assert (await demo.get()).metadata.finalizers == [CONTROL_PLANE_FINALIZER]
        assert len(await operator_tokens(database)) == 1
        await demo.delete(CONTROL_PLANE, "demo")
        await eventually(lambda: is_gone(demo))
        assert await operator_tokens(database) == []


AT_COMMIT = """
CREATE FUNCTION hesitate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER hesitate AFTER INSERT ON api_keys DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION hesitate();
"""


async def test_a_crash_during_token_creation_leaves_no_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """The database commits after the crash."""
    await database.server.execute(AT_COMMIT, database.name)
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await eventually(lambda: has_finalizer(demo))
        assert await demo.token()
        assert await operator_tokens(database) == []
        operator.cancel_workers()
    await eventually(lambda: operator_tokens(database))
    assert (await demo.get()).status.operator_token_secret_ref is None
    await demo.delete(CONTROL_PLANE, "demo")
    async with demo.operator():
        await eventually(lambda: is_gone(demo))
    assert await operator_tokens(database) == []


async def has_finalizer(demo: PlaneNamespace) -> bool:
    return (await demo.get()).metadata.finalizers == [CONTROL_PLANE_FINALIZER]


async def test_an_edited_secret_does_not_prove_that_the_token_is_revoked(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    async with demo.operator() as operator:
        await with_access(demo, database, operator)
    await demo.put_secret(SECRET_NAME, token="AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB")
    await demo.change(extraEnv=[])  # like a Secret with the URL that was deleted
    await demo.delete(CONTROL_PLANE, "demo")
    async with demo.operator() as operator:
        await operator.reconcile()
        assert await has_finalizer(demo)
        assert await demo.events("OperatorTokenRevoked") == []
        assert len(await operator_tokens(database)) == 1
