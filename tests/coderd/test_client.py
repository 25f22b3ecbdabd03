"""Every call of the client, with the coderd simulator, with and without a license, for each version."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.coderd import errors, templates
from coder_k8s.coderd.caller import decode
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.templates import PAGE
from coder_k8s.coderd.types import ProvisionerJob, ProvisionerKey
from coder_k8s.dev.coderd_server import CoderdServer, User, make_license
from tests.support.clock import Clock

ENTERPRISE = ("2.30.0", "2.36.1")
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture(params=ENTERPRISE)
async def coderd(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[CoderdServer]:
    async with CoderdServer(request.param, clock) as server:
        yield server


@pytest.fixture
async def agpl() -> AsyncIterator[CoderdServer]:
    async with CoderdServer("agpl") as server:
        yield server


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with Connections() as pool:
        yield pool


@pytest.fixture
def client(connections: Connections, coderd: CoderdServer) -> Client:
    return Client(connections, coderd.url, coderd.state.token)


async def test_build_info(client: Client, coderd: CoderdServer) -> None:
    info = await client.build_info()
    assert (info.version, info.deployment_id) == (coderd.state.build_version, coderd.state.deployment_id)


async def test_the_user_of_the_token(client: Client) -> None:
    user = await client.me()
    assert (user.username, user.status, [role.name for role in user.roles]) == ("admin", "active", ["owner"])


@pytest.mark.parametrize("text", ["", "garbage", "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB", "two\nlines", "ümlaut"])
async def test_an_invalid_token(connections: Connections, coderd: CoderdServer, text: str) -> None:
    with pytest.raises(errors.Unauthorized):
        await Client(connections, coderd.url, text).me()


async def test_a_revoked_or_expired_token(client: Client, coderd: CoderdServer, clock: Clock) -> None:
    coderd.state.add_token(coderd.state.owner, coderd.state.token, expires=NOW + timedelta(hours=1))
    await client.me()
    clock.time += timedelta(hours=2)
    with pytest.raises(errors.Unauthorized, match="expired at"):
        await client.me()
    coderd.state.revoke_token(coderd.state.token)
    with pytest.raises(errors.Unauthorized):
        await client.me()


async def test_a_suspended_user_is_forbidden(connections: Connections, coderd: CoderdServer) -> None:
    token = coderd.state.add_token(User("jo", status="suspended"))
    with pytest.raises(errors.Forbidden, match="not active"):
        await Client(connections, coderd.url, token).me()


async def test_a_database_that_is_down_does_not_invalidate_the_token(client: Client, coderd: CoderdServer) -> None:
    coderd.state.set(database_down=True)
    for call in (client.me(), client.organization("default"), client.look_up_provisioner_key("x" * 43)):
        with pytest.raises(errors.Unavailable):
            await call
    await client.entitlements()
    coderd.state.set(database_down=False)
    await client.me()


async def test_permissions_of_a_member(connections: Connections, coderd: CoderdServer) -> None:
    member = Client(connections, coderd.url, coderd.state.add_token(User("jo")))
    with pytest.raises(errors.Forbidden):
        await member.add_license("x")
    with pytest.raises(errors.NotFound):
        await member.provisioner_daemons("default")


async def test_without_a_license(client: Client) -> None:
    entitlements = await client.entitlements()
    assert not entitlements.has_license
    assert entitlements.features["external_provisioner_daemons"].entitlement == "not_entitled"
    assert await client.licenses() == []
    for call in (
        client.provisioner_keys("default"),
        client.create_provisioner_key("default", "k", {}),
        client.delete_provisioner_key("default", "k"),
        client.workspace_proxies(),
        client.create_workspace_proxy("p", "P", "/icon.svg"),
        client.delete_workspace_proxy("p"),
    ):
        with pytest.raises(errors.NotLicensed, match="Contact sales"):
            await call


async def test_the_agpl_build_does_not_support_enterprise_routes(connections: Connections, agpl: CoderdServer) -> None:
    client = Client(connections, agpl.url, agpl.state.token)
    assert (await client.me()).username == "admin"
    for call in (
        client.entitlements(),
        client.licenses(),
        client.add_license("x"),
        client.provisioner_keys("default"),
        client.look_up_provisioner_key("x" * 43),
        client.workspace_proxies(),
    ):
        with pytest.raises(errors.NotSupported):
            await call


async def test_a_license_from_upload_to_expiration(client: Client, coderd: CoderdServer, clock: Clock) -> None:
    jwt = make_license(NOW, trial=True)
    added = await client.add_license(jwt)
    assert [each.id for each in await client.licenses()] == [added.id]
    assert added.claims["exp"] == int((NOW + timedelta(days=395)).timestamp())
    entitlements = await client.entitlements()
    assert (entitlements.has_license, entitlements.trial) == (True, True)
    assert entitlements.features["custom_roles"].entitlement == "entitled"

    with pytest.raises(errors.Conflict):
        await client.add_license(jwt)
    clock.time += timedelta(days=370)
    assert (await client.entitlements()).features["custom_roles"].entitlement == "grace_period"
    clock.time += timedelta(days=30)
    assert not (await client.entitlements()).has_license

    assert coderd.state.count("POST", "/api/v2/licenses") == 2


@pytest.mark.parametrize("jwt", ["", "abc", "a.b.c"])
async def test_an_invalid_license(client: Client, jwt: str) -> None:
    with pytest.raises(errors.Invalid):
        await client.add_license(jwt)


async def test_a_license_with_an_invalid_signature_is_listed_without_entitlements(
    client: Client, coderd: CoderdServer
) -> None:
    coderd.state.add_license(make_license(NOW).rpartition(".")[0] + ".bm90aGluZw")
    [listed] = await client.licenses()
    assert listed.claims["feature_set"] == "premium"
    entitlements = await client.entitlements()
    assert not entitlements.has_license
    assert "verification error" in entitlements.errors[0]


async def test_organizations(client: Client, coderd: CoderdServer) -> None:
    one = await client.organization("default")
    assert one.id == coderd.state.organization_id
    for name in ("coder", "CODER", one.id):
        assert await client.organization(name) == one
    for name in ("nope", "a/b", "..%2f", "ü"):
        with pytest.raises(errors.NotFound):
            await client.organization(name)


@pytest.mark.parametrize("name", ["env=prod", "a:b+c@d", "a&b,c;d$e", "a b%20c?d#e", "ü!'()*[]~", "%3D"])
async def test_a_key_with_any_name_can_be_deleted(client: Client, coderd: CoderdServer, name: str) -> None:
    coderd.state.install_license()
    await client.create_provisioner_key("default", name, {})
    await client.delete_provisioner_key("default", name)
    assert await client.provisioner_keys("default") == []


@pytest.mark.parametrize(
    ("path", "status"), [("env%3Dprod", 404), ("env=prod", 204), ("env%3dprod", 404), ("a%2Fb", 404), ("%61", 404)]
)
async def test_a_path_segment_stays_encoded_unless_go_encodes_it_the_same_way(
    coderd: CoderdServer, connections: Connections, path: str, status: int
) -> None:
    coderd.state.install_license()
    for name in ("env=prod", "a/b", "a"):
        coderd.state.add_key(name)
    url = f"{coderd.url}/api/v2/organizations/default/provisionerkeys/{path}"
    response = await connections.exchange("DELETE", url, {"Coder-Session-Token": coderd.state.token}, None)
    assert response.status == status


@pytest.mark.parametrize(
    ("user", "listed", "created"),
    [
        (User("member"), errors.NotFound, errors.NotFound),
        (User("outsider", in_organization=False), errors.NotFound, errors.NotFound),
        (User("auditor", ("auditor",)), None, errors.Forbidden),
    ],
    ids=lambda value: value.username if isinstance(value, User) else "",
)
async def test_keys_are_hidden_from_users_without_permission(
    connections: Connections,
    coderd: CoderdServer,
    user: User,
    listed: type[Exception] | None,
    created: type[Exception],
) -> None:
    coderd.state.install_license()
    coderd.state.add_key("build")
    client = Client(connections, coderd.url, coderd.state.add_token(user))
    if listed:
        for call in (client.provisioner_keys("default"), client.delete_provisioner_key("default", "build")):
            with pytest.raises(listed):
                await call
    else:
        assert [key.name for key in await client.provisioner_keys("default")] == ["build"]
    with pytest.raises(created):
        await client.create_provisioner_key("default", "other", {})
    assert set(coderd.state.keys) == {"build"}


async def test_an_organization_keeps_its_id_when_it_is_renamed(client: Client, coderd: CoderdServer) -> None:
    coderd.state.add_organization("acme")
    before = await client.organization("acme")
    coderd.state.rename_organization("acme", "apex")
    assert (await client.organization(before.id)).name == "apex"
    with pytest.raises(errors.NotFound):
        await client.organization("acme")


async def test_a_provisioner_key_from_creation_to_deletion(client: Client, coderd: CoderdServer) -> None:
    coderd.state.install_license()
    secret = await client.create_provisioner_key("default", "Build Farm", {"env": "prod", "empty": ""})
    [key] = await client.provisioner_keys("default")
    assert (key.name, key.tags, key.organization) == ("build farm", {"env": "prod"}, coderd.state.organization_id)
    assert await client.look_up_provisioner_key(secret) == key
    with pytest.raises(errors.Conflict):
        await client.create_provisioner_key("default", "build farm", {})
    with pytest.raises(errors.Invalid):
        await client.create_provisioner_key("default", "psk", {})
    with pytest.raises(errors.Invalid):
        await client.create_provisioner_key("default", "k" * 65, {})

    await client.delete_provisioner_key("default", "Build Farm")
    assert await client.look_up_provisioner_key(secret) is None
    with pytest.raises(errors.NotFound):
        await client.delete_provisioner_key("default", "Build Farm")
    assert coderd.state.count("DELETE", "/api/v2/organizations/{organization}/provisionerkeys/{name}") == 2


@pytest.mark.parametrize("secret", ["", "short", "x" * 43, "line\n", "ü" * 43])
async def test_an_unknown_key(client: Client, secret: str) -> None:
    assert await client.look_up_provisioner_key(secret) is None


async def test_daemons(client: Client, coderd: CoderdServer) -> None:
    coderd.state.install_license()
    coderd.state.add_key("farm", {"env": "prod"})
    coderd.state.connect_daemon("built-in-0")
    daemon = coderd.state.connect_daemon("pod-1", "farm", "busy", current_job={"id": "j", "status": "running"})
    offline = coderd.state.connect_daemon("pod-2", "farm", "offline")

    seen = {each.id: each for each in await client.provisioner_daemons("default")}
    assert len(seen) == 3
    assert (seen[daemon].status, seen[daemon].key_name, seen[daemon].tags["env"]) == ("busy", "farm", "prod")
    assert seen[daemon].current_job is not None
    assert offline not in {each.id for each in await client.provisioner_daemons("default", offline=False)}

    coderd.state.delete_key("farm")
    assert daemon not in {each.id for each in await client.provisioner_daemons("default")}


async def test_a_workspace_proxy_from_registration_to_deletion(client: Client, coderd: CoderdServer) -> None:
    coderd.state.install_license()
    created = await client.create_workspace_proxy("sydney", "Sydney", "/emojis/1.png")
    assert created.proxy_token.startswith(created.proxy.id + ":")
    assert (created.proxy.status.status, created.proxy.healthy) == ("unregistered", False)
    assert [each.name for each in await client.workspace_proxies()] == ["primary", "sydney"]
    with pytest.raises(errors.Conflict):
        await client.create_workspace_proxy("Sydney", "Sydney", "/emojis/1.png")

    kept = await client.update_workspace_proxy(created.proxy.id, "sydney", "Down under", "/emojis/2.png")
    assert (kept.proxy.display_name, kept.proxy_token) == ("Down under", "")
    new = await client.update_workspace_proxy(
        created.proxy.id, "sydney", "Down under", "/emojis/2.png", regenerate_token=True
    )
    assert new.proxy_token not in ("", created.proxy_token)
    coderd.state.set_proxy("sydney", "ok")
    assert (await client.workspace_proxies())[-1].healthy

    await client.delete_workspace_proxy("sydney")
    assert [each.name for each in await client.workspace_proxies()] == ["primary"]
    assert created.proxy_token not in repr(created)


async def test_rate_limit(client: Client, coderd: CoderdServer) -> None:
    coderd.state.set(rate_limited=True)
    with pytest.raises(errors.RateLimited) as caught:
        await client.me()
    assert caught.value.after == 60


async def test_an_internal_error(client: Client, coderd: CoderdServer) -> None:
    coderd.state.set(failing=True)
    with pytest.raises(errors.Unavailable, match="HTTP 500"):
        await client.me()


def test_unknown_fields_are_ignored() -> None:
    assert ProvisionerKey.__struct_config__.forbid_unknown_fields is False


async def test_jobs_that_wait_or_run(client: Client, coderd: CoderdServer) -> None:
    """All of them: the oldest are the ones that matter, and coderd lists the newest 50 unless told otherwise."""
    queue, day = coderd.state.queue, timedelta(days=1)
    for hours in range(60):
        queue.add_job({"env": "prod"}, created_at=NOW + timedelta(hours=hours))
    running, canceling = (queue.add_job(created_at=NOW - day, started_at=NOW - day) for _ in range(2))
    queue.cancel_job(canceling)
    for error, canceled in (("", None), ("failed", None), ("", NOW)):
        queue.add_job(created_at=NOW - 2 * day, canceled_at=canceled, completed_at=NOW - day, error=error)
    found = await client.provisioner_jobs("default")
    assert [job.status for job in found] == ["pending"] * 60 + ["running", "canceling"]
    assert (found[59].tags["env"], found[59].created_at, found[60].id) == ("prod", NOW, running)
    assert (found[59].started_at, found[59].worker_name, found[59].metadata.workspace_name) == (None, "", "")
    assert [job.waits for job in found[59:]] == [True, False, False]


async def test_organizations_of_the_user(client: Client) -> None:
    assert [each.is_default for each in await client.organizations()] == [True]


@pytest.mark.parametrize(
    "time",
    ["2026-01-01T00:00:00", "2026-01-01", "yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"],
)
def test_an_impossible_time_of_a_job_is_no_response_of_coderd(time: str) -> None:
    """It cannot be compared with other times, or no other time can be computed from it."""
    job = f'[{{"id": "x", "created_at": "{time}", "status": "pending", "tags": {{}}}}]'
    with pytest.raises(errors.Unavailable, match="jobs: invalid response"):
        decode(list[ProvisionerJob], "jobs", job.encode())
    completed = job.replace(time, "2026-01-01T00:00:00Z").replace("}]", f', "completed_at": "{time}"}}]')
    with pytest.raises(errors.Unavailable, match="jobs: invalid response"):
        decode(list[templates.ImportJob], "jobs", completed.encode())


async def test_many_versions_of_a_template(client: Client, coderd: CoderdServer) -> None:
    template = coderd.state.templates.add_template("go")
    added = [coderd.state.templates.add_version(f"n{number}", template=template).id for number in range(2 * PAGE)]
    found = await client.versions_of(template)
    assert {each.id for each in found} == {*added, coderd.state.templates.templates[template].active}
    assert sum(number for (_, path), number in coderd.state.requests.items() if path.endswith("/versions")) == 3


async def test_too_many_versions_of_a_template(
    client: Client, coderd: CoderdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "VERSIONS_LIMIT", 2 * PAGE)
    template = coderd.state.templates.add_template("go")
    for number in range(2 * PAGE):
        coderd.state.templates.add_version(f"n{number}", template=template)
    with pytest.raises(errors.Unavailable, match="more than 50 versions"):
        await client.versions_of(template)
