"""Templates of the simulator and their versions."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, State, User

HIDDEN = {"message": "Resource not found or you do not have access to this resource"}


class Coderd:
    """A coderd with a clock and a user."""

    def __init__(self, version: str) -> None:
        self.time = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
        self.server = CoderdServer(version, now=lambda: self.time)
        self.token = self.server.state.token

    @property
    def state(self) -> State:
        return self.server.state

    def sign_in(self, *roles: str, **fields: Any) -> None:
        self.token = self.state.add_token(User("someone", roles, **fields))

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        self.time += timedelta(seconds=1)
        headers = {"Coder-Session-Token": self.token, **options.pop("headers", {})}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, f"{self.server.url}/api/v2/{path}", **options) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture(params=["2.30.0", "2.36.1", "agpl"])
async def coderd(request: pytest.FixtureRequest) -> AsyncIterator[Coderd]:
    made = Coderd(request.param)
    async with made.server:
        yield made


async def test_reading_templates_and_their_versions(coderd: Coderd) -> None:
    gpu = coderd.state.templates.add_template("gpu", {"env": "gpu"}, display_name="GPU")
    coderd.state.templates.add_template("Zoo")
    coderd.state.templates.add_template("old", deprecation_message="use gpu")
    for path in ("templates", "organizations/default/templates"):
        status, listed = await coderd("GET", path)
        assert (status, [each["name"] for each in listed]) == (200, ["Zoo", "gpu"])
        assert [each["name"] for each in (await coderd("GET", f"{path}?q=deprecated:true"))[1]] == ["old"]
    _, template = await coderd("GET", f"templates/{gpu}")
    assert (template["display_name"], template["created_by_name"]) == ("GPU", "admin")
    assert await coderd("GET", "organizations/coder/templates/GPU") == (200, template)
    _, version = await coderd("GET", f"templateversions/{template['active_version_id']}")
    assert (version["name"], version["template_id"], version["job"]["status"]) == ("v1", gpu, "succeeded")
    assert version["job"]["tags"] == {"env": "gpu", "owner": "", "scope": "organization"}
    assert "matched_provisioners" not in version
    for path in ("organizations/default/templates/gpu/versions/v1", f"templates/{gpu}/versions/v1"):
        assert await coderd("GET", path) == (200, version)
    missing = {"message": 'No template version found by name "v2".'}
    assert await coderd("GET", f"templates/{gpu}/versions/v2") == (404, missing)
    assert await coderd("GET", "organizations/default/templates/nope") == (404, HIDDEN)
    invalid = {"message": 'Invalid UUID "nope".', "detail": "invalid UUID length: 4"}
    assert await coderd("GET", "templateversions/nope") == (400, invalid)


async def test_daemons_that_could_import_a_version(coderd: Coderd) -> None:
    version = coderd.state.templates.add_version("v1", {"env": "gpu"})
    path = f"templateversions/{version.id}"
    nobody = {"count": 0, "available": 0, "most_recently_seen": None}
    assert (await coderd("GET", path))[1]["matched_provisioners"] == nobody
    daemon = coderd.state.connect_daemon("gpu-0", tags={"env": "gpu", "owner": "", "scope": "organization"})
    seen = (await coderd("GET", path))[1]["matched_provisioners"]
    assert (seen["count"], seen["available"]) == (1, 1)
    coderd.state.close_daemon(daemon)
    coderd.time += timedelta(minutes=2)
    assert (await coderd("GET", path))[1]["matched_provisioners"] == {**seen, "available": 0}
    _, [job] = await coderd("GET", "organizations/default/provisionerjobs")
    assert job["metadata"]["template_version_name"] == "v1"
    assert job["input"] == {"template_version_id": version.id}


async def test_who_sees_templates(coderd: Coderd) -> None:
    template = coderd.state.templates.add_template("gpu")
    version = coderd.state.templates.add_version("draft")
    coderd.sign_in()
    assert (await coderd("GET", f"templates/{template}"))[0] == 200
    assert await coderd("GET", f"templateversions/{version.id}") == (404, HIDDEN)
    coderd.sign_in(in_organization=False)
    assert await coderd("GET", f"templates/{template}") == (404, HIDDEN)
    assert await coderd("GET", "templates") == (200, [])
    coderd.sign_in("template-admin")
    assert (await coderd("GET", f"templateversions/{version.id}"))[0] == 200


async def test_uploads_are_limited(coderd: Coderd) -> None:
    headers = {"Content-Type": "application/x-tar"}
    for number in range(12):
        status, _ = await coderd("POST", "files", data=str(number).encode(), headers=headers)
        assert status == 201
    status, refused = await coderd("POST", "files", data=b"x", headers=headers)
    assert (status, "more than 12 requests" in refused["message"]) == (429, True)
    bypass = {**headers, "X-Coder-Bypass-Ratelimit": "true"}
    assert (await coderd("POST", "files", data=b"x", headers=bypass))[0] == 201
    coderd.time += timedelta(minutes=1)
    assert (await coderd("POST", "files", data=b"y", headers=headers))[0] == 201


async def test_an_omitted_setting_is_zero_in_230(coderd: Coderd) -> None:
    path = f"templates/{coderd.state.templates.add_template('gpu', allow_user_cancel_workspace_jobs=True)}"
    _, before = await coderd("GET", path)
    kept = {**before, "updated_at": "", "display_name": "GPU"}
    lost = {"activity_bump_ms": 0, "allow_user_cancel_workspace_jobs": False} if coderd.state.is_old else {}
    _, changed = await coderd("PATCH", path, json={"display_name": "GPU"})
    assert {**changed, "updated_at": ""} == {**kept, **lost}
    assert changed["updated_at"] > before["updated_at"]


async def test_a_license_for_settings_and_roles() -> None:
    coderd = Coderd("2.36.1")
    async with coderd.server:
        coderd.state.install_license()
        template = coderd.state.templates.add_template("gpu")
        path, everyone, group = f"templates/{template}", coderd.state.organization_id, "0" * 8
        change = {
            "require_active_version": True,
            "autostop_requirement": {"days_of_week": ["Sunday", "Monday"], "weeks": 2},
            "failure_ttl_ms": 120000,
            "max_port_share_level": "authenticated",
        }
        status, changed = await coderd("PATCH", path, json=change)
        days = {"days_of_week": ["monday", "sunday"], "weeks": 2}
        assert (status, changed["autostop_requirement"]) == (200, days)
        assert {name: changed[name] for name in change} == {**change, "autostop_requirement": days}
        assert (await coderd("PATCH", path, json={"max_port_share_level": "nope"}))[0] == 400
        assert (await coderd("PATCH", f"{path}/acl", json={"group_perms": {group: "admin", everyone: ""}}))[0] == 200
        _, roles = await coderd("GET", f"{path}/acl")
        assert [(each["id"], each["role"]) for each in roles["group"]] == [(group, "admin")]
        assert (await coderd("PATCH", f"{path}/acl", json={"user_perms": {group: "nope"}}))[0] == 400
        _, retired = await coderd("PATCH", path, json={"deprecation_message": "use another one"})
        assert (retired["deprecated"], retired["failure_ttl_ms"]) == (True, 120000)
        assert await coderd("GET", "templates") == (200, [])
        coderd.state.templates.use_versions(template, [retired["active_version_id"]])
        assert (await coderd("DELETE", path))[0] == 400
