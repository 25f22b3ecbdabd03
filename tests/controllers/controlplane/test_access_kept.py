"""A token that works stays in use, and one that is no longer required is revoked."""

import pytest

from coder_k8s.api import CONTROL_PLANE, reasons
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.controlplane.outcomes import READY, judge_generated, judge_token
from coder_k8s.controllers.report import Outcome
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, assert_one_token, env, operator_tokens
from tests.support.databases import CoderdDatabase, create_database

SECRET_NAME = "demo-operator-token"
ME = "/api/v2/users/me"
VALID = Outcome(READY, True, reasons.TOKEN_READY, "valid until 2027-03-01")
ACCEPTED = Outcome(READY, True, reasons.TOKEN_READY, "accepted")
REDIRECTED = Outcome(READY, False, reasons.REDIRECTED_TO_ACCESS_URL, "redirected", stalled=True)
REFUSED = Outcome(READY, False, reasons.TOKEN_REJECTED, "refused", stalled=True)
UNKNOWN = Outcome(READY, None, reasons.PENDING, "coderd is unavailable")
DOWN = Outcome(READY, False, reasons.DATABASE_UNREACHABLE, "the database is down")
NEW_SCHEMA = Outcome(READY, False, reasons.SCHEMA_UNSUPPORTED, "table users requires a value for new", stalled=True)
NO_URL = Outcome(READY, False, reasons.DATABASE_URL_MISSING, "no URL", stalled=True)
HUMAN = Outcome(READY, False, reasons.USERNAME_TAKEN, "a human", stalled=True)
EMPTY = Outcome(READY, None, reasons.PENDING, "no tables")
QUOTA = Outcome(READY, False, reasons.SECRET_UNAVAILABLE, "exceeded quota", stalled=True)
NOT_HELD = Outcome(READY, None, reasons.FORBIDDEN, "Finalizer cannot be added", stalled=True)
UNCHECKED = (DOWN, NEW_SCHEMA, NO_URL, HUMAN, QUOTA, NOT_HELD)


@pytest.mark.parametrize(
    ("database", "coderd", "expected"),
    [
        (VALID, REDIRECTED, REDIRECTED),
        *((VALID, coderd, VALID) for coderd in (ACCEPTED, UNKNOWN, None)),
        *((database, coderd, database) for database in UNCHECKED for coderd in (REFUSED, None)),
        *((database, coderd, database) for database in (DOWN, NEW_SCHEMA) for coderd in (UNKNOWN, REDIRECTED)),
        *((EMPTY, coderd, EMPTY) for coderd in (ACCEPTED, REFUSED, None)),
    ],
)
def test_generated_token_outcome(database: Outcome, coderd: Outcome | None, expected: Outcome) -> None:
    assert judge_generated(database, coderd, "demo") == expected


def test_a_token_of_another_database_is_rejected() -> None:
    judged = judge_generated(VALID, REFUSED, "demo")
    assert (judged.status, judged.reason, judged.stalled) == (False, "TokenRejected", True)
    assert VALID.message in judged.message
    assert REFUSED.message in judged.message


@pytest.mark.parametrize("database", UNCHECKED)
def test_a_token_that_coderd_accepts_needs_no_database(database: Outcome) -> None:
    judged = judge_generated(database, ACCEPTED, "demo")
    assert (judged.status, judged.reason, judged.stalled) == (True, "TokenReady", False)
    assert "Secret demo" in judged.message
    assert database.message in judged.message


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("ada", True, "TokenReady"),
        (errors.Unauthorized("dead"), False, "TokenRejected"),
        (errors.Forbidden("suspended"), False, "TokenRejected"),
        (errors.NotFound("hidden"), False, "TokenRejected"),
        (errors.Redirected("sent away", "https://coder.example.com"), False, "RedirectedToAccessURL"),
        (errors.Redirected("sent away", ""), False, "RedirectedToAccessURL"),
        (errors.RateLimited("too often", 60), None, "Pending"),
        (errors.Unavailable("down"), None, "Pending"),
    ],
)
def test_given_token_outcome(answer: str | errors.CoderdError, status: bool | None, reason: str) -> None:
    judged = judge_token(answer, "given")
    assert (judged.status, judged.reason, judged.stalled) == (status, reason, status is False)


async def change_schema(database: CoderdDatabase) -> None:
    """Change the schema like an unknown version of coderd."""
    await database.server.execute("ALTER TABLE users ADD COLUMN new text NOT NULL DEFAULT ''", database.name)
    await database.server.execute("ALTER TABLE users ALTER COLUMN new DROP DEFAULT", database.name)


async def with_access(demo: PlaneNamespace, database: CoderdDatabase) -> str:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
    return await demo.token()


async def test_an_unsupported_schema_keeps_the_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """Also after a restart, and after more than the hour between two checks."""
    first = await with_access(demo, database)
    await change_schema(database)
    async with demo.operator() as operator:
        condition = await eventually(lambda: not_renewed(demo))
        assert SECRET_NAME in condition
        assert "requires a value for new" in condition
        assert (await demo.conditions())["Ready"] == ("True", "AllReady")
        assert (await demo.get()).status.operator_access_ready
        await demo.event("OperatorTokenNotRenewed")
        queries = demo.coderd.state.count("GET", ME)
        for _ in range(3):
            await operator.later(minutes=2)
        assert demo.coderd.state.count("GET", ME) == queries, "it is not queried at every reconcile"
        await operator.later(minutes=61)
        assert await not_renewed(demo) == condition
        assert await demo.event("OperatorTokenNotRenewed"), "once"
        assert await demo.token() == first
        await database.server.execute("ALTER TABLE users ALTER COLUMN new SET DEFAULT ''", database.name)
        await operator.later(seconds=31)
        assert "valid until" in (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
        assert await assert_one_token(demo, database) == first


async def not_renewed(demo: PlaneNamespace) -> str:
    message = (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
    assert "not renewed" in message
    return message


async def test_a_token_that_coderd_rejects_is_not_used(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await with_access(demo, database)
    await change_schema(database)
    await database.server.execute("DELETE FROM api_keys", database.name)
    async with demo.operator():
        await demo.condition("OperatorAccessReady", "SchemaUnsupported", "False")
        await demo.condition("Stalled", "SchemaUnsupported", "True")


async def is_accepted(demo: PlaneNamespace, token: str) -> bool:
    async with Connections() as connections:
        try:
            await Coderd(connections, demo.coderd.url, token).me()
        except errors.Unauthorized:
            return False
    return True


@pytest.mark.parametrize("secret_lost", [False, True])
async def test_a_given_token_replaces_the_generated_one(
    demo: PlaneNamespace, database: CoderdDatabase, secret_lost: bool
) -> None:
    """The revocation is retried while the database is down, also after a restart of the operator."""
    first = await with_access(demo, database)
    await demo.put_secret("given", token=demo.coderd.state.token)
    if secret_lost:
        await demo.delete(SECRET, SECRET_NAME)
    await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    await demo.change(operatorAccess={"tokenSecretRef": {"name": "given"}})
    for _ in range(2):
        async with demo.operator() as operator:
            condition = await eventually(lambda: not_revoked(demo))
            assert SECRET_NAME in condition
            reference = (await demo.get()).status.operator_token_secret_ref
            assert reference is not None
            assert reference.name == SECRET_NAME, "the status names it until then"
            await operator.wait_idle()
    async with demo.operator() as operator:
        await database.server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await operator.later(seconds=31)
        await eventually(lambda: is_free(demo))
        await operator.wait_idle()
        assert "given" in (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
        reference = (await demo.get()).status.operator_token_secret_ref
        assert reference is not None
        assert reference.name == "given"
    assert await demo.find(SECRET, SECRET_NAME) is None
    assert await operator_tokens(database) == []
    assert not await is_accepted(demo, first)
    assert await is_accepted(demo, demo.coderd.state.token)


async def not_revoked(demo: PlaneNamespace) -> str:
    message = (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
    assert "not revoked yet" in message
    return message


async def is_free(demo: PlaneNamespace) -> bool:
    return not (await demo.get()).metadata.finalizers


async def test_a_given_token_that_is_rejected_keeps_the_generated_one(
    demo: PlaneNamespace, database: CoderdDatabase
) -> None:
    first = await with_access(demo, database)
    await demo.put_secret("given", token="AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB")
    await demo.change(operatorAccess={"tokenSecretRef": {"name": "given"}})
    async with demo.operator() as operator:
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        await operator.wait_idle()
        assert await is_accepted(demo, first)
        await demo.change(operatorAccess={"tokenSecretRef": None})
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert await assert_one_token(demo, database) == first


async def test_the_generated_secret_as_the_given_one_is_kept(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    first = await with_access(demo, database)
    await demo.change(operatorAccess={"tokenSecretRef": {"name": SECRET_NAME}})
    async with demo.operator() as operator:
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.wait_idle()
        assert await assert_one_token(demo, database) == first


async def test_the_finalizer_is_added_before_the_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """Also for an object of an earlier version without this finalizer."""
    await with_access(demo, database)
    assert (await demo.get()).metadata.finalizers == [CONTROL_PLANE_FINALIZER]
    await demo.client.merge(CONTROL_PLANE, demo.key, {"metadata": {"finalizers": None}})
    async with demo.operator():
        await eventually(lambda: has_finalizer(demo))


async def has_finalizer(demo: PlaneNamespace) -> bool:
    return (await demo.get()).metadata.finalizers == [CONTROL_PLANE_FINALIZER]


@pytest.mark.parametrize("given", [False, True])
async def test_a_redirect_to_the_access_url_is_reported(
    demo: PlaneNamespace, database: CoderdDatabase, given: bool
) -> None:
    """The token is not sent to the target of the redirect."""
    demo.coderd.state.set(redirect_to="https://coder.example.com")
    await demo.put_secret("given", token=demo.coderd.state.token)
    access = {"tokenSecretRef": {"name": "given"}} if given else {}
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url), operatorAccess=access)
        await demo.roll_out()
        condition = await demo.condition("OperatorAccessReady", "RedirectedToAccessURL", "False")
        assert "https://coder.example.com" in condition.message
        assert "CODER_REDIRECT_TO_ACCESS_URL" in condition.message
        await demo.condition("Stalled", "RedirectedToAccessURL", "True")
        demo.coderd.state.set(redirect_to="")
        await operator.later(seconds=31)
        await demo.condition("Ready", "AllReady", "True")


async def test_disabled_after_a_given_token_needs_no_database(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """The database is needed only if the operator created a token."""
    await demo.put_secret("given", token=demo.coderd.state.token)
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.change(operatorAccess={"tokenSecretRef": None, "disabled": True})
        await demo.condition("OperatorAccessReady", "Disabled", "False")
        await demo.condition("Ready", "AllReady", "True")
    assert await demo.client.get(SECRET, Key(demo.namespace, "given"))


async def test_a_database_that_coder_does_not_use_is_reported(
    demo: PlaneNamespace, database: CoderdDatabase, postgres: Postgres
) -> None:
    other = await create_database(postgres, "2.36.1")
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(other.url))
        await demo.roll_out()
        condition = await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        assert "valid until" in condition.message
        assert "API key is invalid" in condition.message
        await demo.condition("Stalled", "TokenRejected", "True")
        await operator.wait_idle()
        first = await demo.token()
        await operator.later(seconds=31)
        assert await demo.token() == first, "a new token would not help"
        await demo.change(extraEnv=env(database.url))
        await demo.roll_out()
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await assert_one_token(demo, database)
