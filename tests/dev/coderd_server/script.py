"""Requests to a coderd without a license, with the status of each response.

`{name}` in a path or body is a value of an earlier response (`save`) or the name of an organization. A step without a
request changes the state of the server by other means.
"""

import io
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.real_coderd import Coderd

NOBODY = "6b7ea85c-0000-4000-8000-000000000000"
ORGANIZATION = "organizations/default"
DAEMONS, JOBS = f"{ORGANIZATION}/provisionerdaemons", f"{ORGANIZATION}/provisionerjobs"
KEYS = f"{ORGANIZATION}/provisionerkeys"
VERSIONS, TEMPLATES = f"{ORGANIZATION}/templateversions", f"{ORGANIZATION}/templates"
UNTAGGED = {"owner": "", "scope": "organization"}
Change = Callable[[Coderd, Mapping[str, str]], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True)
class Step:
    """A request, or a change by other means; `agpl` is the status in the AGPL build, if it differs."""

    name: str
    method: str = ""
    path: str = ""
    status: int = 200
    agpl: int = 0
    user: str = "operator"
    body: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    save: Mapping[str, str] = field(default_factory=dict)
    """Names of values of the response, by their path in it."""
    keys_only: bool = False
    """Whether only the keys of the response are compared, because its values are measurements."""
    change: Change | None = None


def get(name: str, path: str, status: int = 200, **more: Any) -> Step:
    return Step(name, "GET", path, status, **more)


def post(name: str, path: str, status: int, body: Any = None, **more: Any) -> Step:
    return Step(name, "POST", path, status, body=body, **more)


def patch(name: str, path: str, status: int, body: Any = None, **more: Any) -> Step:
    return Step(name, "PATCH", path, status, body=body, **more)


def delete(name: str, path: str, status: int, **more: Any) -> Step:
    return Step(name, "DELETE", path, status, **more)


def add_users(**roles: str) -> Step:
    async def change(coderd: Coderd, known: Mapping[str, str]) -> Mapping[str, str]:
        return {name: await coderd.add_user(name, *filter(None, [role])) for name, role in roles.items()}

    return Step("users are added", change=change)


def suspend(name: str) -> Step:
    async def change(coderd: Coderd, known: Mapping[str, str]) -> Mapping[str, str]:
        await coderd.suspend(name)
        return {}

    return Step("a user is suspended", change=change)


def connect(name: str, tags: Mapping[str, str], seen: timedelta = timedelta()) -> Step:
    async def change(coderd: Coderd, known: Mapping[str, str]) -> Mapping[str, str]:
        return {name: await coderd.connect_daemon(name, {**UNTAGGED, **tags}, seen)}

    return Step(f"daemon {name} connects", change=change)


def start(job: str, daemon: str) -> Step:
    async def change(coderd: Coderd, known: Mapping[str, str]) -> Mapping[str, str]:
        await coderd.start_job(known[job], known[daemon])
        return {}

    return Step(f"{daemon} starts {job}", change=change)


def finish(job: str, error: str = "") -> Step:
    async def change(coderd: Coderd, known: Mapping[str, str]) -> Mapping[str, str]:
        await coderd.finish_job(known[job], error)
        return {}

    return Step(f"{job} ends", change=change)


def tar(**files: str) -> bytes:
    """A tar archive; `__` in a name is a dot."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as writer:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(text)
            writer.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


TAR, ZIP = {"Content-Type": "application/x-tar"}, {"Content-Type": "application/zip"}
MAIN = tar(main__tf='resource "terraform_data" "x" {}\n')
NEW_VERSION = {"storage_method": "file", "file_id": "{file}", "provisioner": "terraform"}
FIRST_VERSION = {"name": "v1", "message": "one", **NEW_VERSION}
GPU = {"tags": {"env": "gpu"}}

ACCESS = (
    get("build information without a token", "buildinfo", user=""),
    get("the operator", "users/me"),
    get("no token", "users/me", 401, user=""),
    get("a token of another shape", "users/me", 401, user="nonsense"),
    get("a token whose parts have other lengths", "users/me", 401, user="a-b"),
    get("a token that does not exist", "users/me", 401, user="AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB"),
    get("a token with another secret", "users/me", 401, user="{operator id}-BBBBBBBBBBBBBBBBBBBBBB"),
    add_users(member="", helper="template-admin", auditor="auditor", leaver="", sleeper=""),
    get("a member", "users/me", user="member"),
    get("a user with a role", "users/me", user="helper"),
    get("the token in another header", "users/me", user="", headers={"Authorization": "Bearer {member}"}),
    get("the token as a cookie", "users/me", user="", headers={"Cookie": "coder_session_token={member}"}),
    get("the token as a parameter", "users/me?coder_session_token={member}", user=""),
    suspend("sleeper"),
    get("a suspended user", "users/me", 401, user="sleeper"),
    delete("the token of another user", "users/me/keys/{member id}", 404, user="leaver"),
    delete("a token that does not exist", "users/me/keys/AAAAAAAAAA", 404, user="leaver"),
    delete("the own token", "users/me/keys/{leaver id}", 204, user="leaver"),
    get("a deleted token", "users/me", 401, user="leaver"),
)
LICENSES = (
    get("entitlements", "entitlements", agpl=404),
    get("entitlements without a token", "entitlements", agpl=404, user=""),
    get("licenses", "licenses", agpl=404),
    get("licenses for a member", "licenses", agpl=404, user="member"),
    get("licenses without a token", "licenses", 401, agpl=404, user=""),
    post("no license", "licenses", 400, {}, agpl=404),
    post("an empty license", "licenses", 400, {"license": ""}, agpl=404),
    post("a license that is no token", "licenses", 400, {"license": "nonsense"}, agpl=404),
    post("a license that cannot be decoded", "licenses", 400, {"license": "a.b.c"}, agpl=404),
    post("a license without a signature", "licenses", 400, {"license": "eyJhbGciOiJub25lIn0.e30."}, agpl=404),
    post("a license that is not JSON", "licenses", 400, content=b"{", agpl=404),
    post("a license of a member", "licenses", 403, {"license": "nonsense"}, agpl=404, user="member"),
    delete("a license that does not exist", "licenses/77", 404),
    delete("a license by another name", "licenses/nonsense", 404),
    delete("a license for a member", "licenses/77", 403, agpl=404, user="member"),
    post("entitlements too early", "licenses/refresh-entitlements", 400, agpl=404),
    post("entitlements for a member", "licenses/refresh-entitlements", 403, agpl=404, user="member"),
)
ORGANIZATIONS = (
    get("organizations", "organizations", save={"organization": "0.id"}),
    get("organizations of a member", "organizations", user="member"),
    get("organizations without a token", "organizations", 401, user=""),
    get("the default organization", ORGANIZATION),
    get("an organization by name", "organizations/coder"),
    get("an organization by name in another case", "organizations/CODER"),
    get("an organization by ID", "organizations/{organization}"),
    get("an organization that does not exist", "organizations/nope", 404),
    get("an organization ID that does not exist", f"organizations/{NOBODY}", 404),
    post("a new organization", "organizations", 403, {"name": "second"}, agpl=405),
    patch("another name of an organization", ORGANIZATION, 403, {"name": "x"}, agpl=405),
    delete("deletion of an organization", ORGANIZATION, 403, agpl=405),
)
REJECTIONS = (
    get("provisioner keys", KEYS, 403, agpl=404),
    get("provisioner keys of a member", KEYS, 403, agpl=404, user="member"),
    get("provisioner keys without a token", KEYS, 401, user="", agpl=401),
    get("provisioner keys elsewhere", "organizations/nope/provisionerkeys", 404),
    post("a new provisioner key", KEYS, 403, {"name": "k"}, agpl=404),
    delete("deletion of a provisioner key", f"{KEYS}/k", 403, agpl=404),
    get("daemons by key", f"{KEYS}/daemons", 403, agpl=404),
    get("a key without the key", "provisionerkeys/x", 401, agpl=404),
    get("a key that is too short", "provisionerkeys/x", 400, agpl=404, headers={"Coder-Provisioner-Daemon-Key": "x"}),
    get(
        "a key that does not exist",
        "provisionerkeys/x",
        401,
        agpl=404,
        headers={"Coder-Provisioner-Daemon-Key": "x" * 43},
    ),
    get("workspace proxies", "workspaceproxies", 403, agpl=404),
    get("workspace proxies without a token", "workspaceproxies", 403, agpl=404, user=""),
    post("a new workspace proxy", "workspaceproxies", 403, {"name": "p"}, agpl=404),
    patch("a change of a workspace proxy", "workspaceproxies/p", 403, {}, agpl=404),
    delete("deletion of a workspace proxy", "workspaceproxies/p", 403, agpl=404),
    post("a workspace proxy that connects", "workspaceproxies/me/register", 403, {}, agpl=404),
)
ERRORS = (
    get("an unknown route", "nonsense", 404),
    get("an unknown route without a token", "nonsense", 404, user=""),
    get("an unknown route of an organization", f"{ORGANIZATION}/nonsense", 404),
    post("another method", "buildinfo", 405),
    delete("another method of a list", DAEMONS, 405),
    delete("another method of a list without a token", DAEMONS, 401, user=""),
    post("an empty body", VERSIONS, 400, content=b""),
    post("a body that is no object", VERSIONS, 400, content=b"nonsense"),
    get("health settings", "debug/health/settings"),
    get("health settings of a member", "debug/health/settings", 403, user="member"),
    get("health of a member", "debug/health", 403, user="member"),
    get("health without a token", "debug/health", 401, user=""),
    get("health", "debug/health", keys_only=True),
)
QUEUE = (
    get("no daemons", DAEMONS),
    get("no jobs", JOBS),
    post("a file", "files", 201, content=MAIN, headers=TAR, save={"file": "hash"}),
    post("the same file", "files", 200, content=MAIN, headers=TAR),
    post("a job that nobody can run", VERSIONS, 201, {"name": "gpu-1", **NEW_VERSION, **GPU}, save={"first": "job.id"}),
    post("an untagged job", VERSIONS, 201, {"name": "plain-1", **NEW_VERSION}, save={"second": "job.id"}),
    get("pending jobs without daemons", f"{JOBS}?status=pending,running"),
    connect("plain", {}),
    connect("gpu", {"env": "gpu", "zone": "a"}),
    connect("old", {"env": "gpu"}, timedelta(minutes=5)),
    get("daemons", DAEMONS),
    get("daemons and those offline", f"{DAEMONS}?offline=true"),
    get("idle daemons", f"{DAEMONS}?status=idle"),
    get("offline daemons", f"{DAEMONS}?status=offline"),
    get("busy and offline daemons", f"{DAEMONS}?status=busy,offline"),
    get("daemons in an unknown state", f"{DAEMONS}?status=nope", 500),
    get("daemons with a tag", f'{DAEMONS}?tags={{"env":"gpu"}}&offline=true'),
    get("untagged daemons", f'{DAEMONS}?tags={{"scope":"organization","owner":""}}'),
    get("daemons with tags that are not JSON", f"{DAEMONS}?tags=nope", 400),
    get("one daemon", f"{DAEMONS}?limit=1"),
    get("all daemons", f"{DAEMONS}?limit=0&offline=true"),
    get("a negative number of daemons", f"{DAEMONS}?limit=-1", 400),
    get("no number of daemons", f"{DAEMONS}?limit=x", 400),
    get("a daemon by ID", f"{DAEMONS}?ids={{gpu}}"),
    get("a daemon by another ID", f"{DAEMONS}?ids=x,{NOBODY}", 400),
    get("daemons by age", f"{DAEMONS}?max_age=1m&offline=true"),
    get("daemons by another age", f"{DAEMONS}?max_age=soon", 400),
    get("daemons by another state", f"{DAEMONS}?offline=maybe", 400),
    get("daemons by an unknown parameter", f"{DAEMONS}?page=2", 400),
    get("daemons of a member", DAEMONS, 404, user="member"),
    get("daemons of an auditor", DAEMONS, 404, user="auditor"),
    get("daemons without a token", DAEMONS, 401, user=""),
    get("pending jobs", f"{JOBS}?status=pending"),
    start("first", "gpu"),
    get("a running and a pending job", f"{JOBS}?limit=0&status=pending,running,canceling"),
    get("a busy daemon", f"{DAEMONS}?status=busy"),
    finish("first"),
    start("second", "plain"),
    finish("second", "terraform failed"),
    get("jobs that ended", JOBS),
    get("daemons after their jobs", DAEMONS),
    get("failed jobs", f"{JOBS}?status=failed"),
    get("jobs in an unknown state", f"{JOBS}?status=nope", 500),
    get("jobs with a tag", f'{JOBS}?tags={{"env":"gpu"}}'),
    get("untagged jobs", f'{JOBS}?tags={{"scope":"organization","owner":""}}'),
    get("jobs with tags that are not JSON", f"{JOBS}?tags=nope", 400),
    get("a job by ID", f"{JOBS}?ids={{first}}"),
    get("jobs of nobody", f"{JOBS}?initiator={NOBODY}"),
    get("jobs of another user", f"{JOBS}?initiator=me", 400),
    get("jobs by two wrong parameters", f"{JOBS}?limit=-1&offline=true", 400),
    get("one job", f"{JOBS}?limit=1"),
    get("a job", f"{JOBS}/{{first}}"),
    get("a job that does not exist", f"{JOBS}/{NOBODY}", 404),
    get("a job by another name", f"{JOBS}/nope", 400),
    get("jobs of a member", JOBS, 404, user="member"),
    get("jobs of a template administrator", JOBS, 404, user="helper"),
)
TEMPLATE, VERSION = "templates/{template}", "templateversions/{version}"
SETTINGS = {
    "display_name": "GPU",
    "default_ttl_ms": 7200000,
    "failure_ttl_ms": 120000,
    "allow_user_autostart": False,
    "allow_user_cancel_workspace_jobs": True,
    "require_active_version": True,
    "deprecation_message": "use another one",
    "autostop_requirement": {"days_of_week": ["Sunday"], "weeks": 2},
}
ALL_SETTINGS = {
    "name": "gpus",
    "display_name": "GPUs",
    "description": "With a GPU",
    "icon": "/icon/gpu.svg",
    "default_ttl_ms": 3600000,
    "activity_bump_ms": 1800000,
    "autostop_requirement": {"days_of_week": [], "weeks": 1},
    "autostart_requirement": {
        "days_of_week": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    },
    "allow_user_autostart": True,
    "allow_user_autostop": True,
    "allow_user_cancel_workspace_jobs": True,
    "failure_ttl_ms": 0,
    "time_til_dormant_ms": 0,
    "time_til_dormant_autodelete_ms": 0,
    "require_active_version": False,
    "cors_behavior": "passthru",
    "use_classic_parameter_flow": True,
}
TEMPLATE_STEPS = (
    post("a file of another type", "files", 400, content=MAIN, headers={"Content-Type": "text/plain"}),
    post("a file that is no archive", "files", 201, content=b"nonsense", headers=TAR),
    post("an archive that is not complete", "files", 400, content=b"nonsense", headers=ZIP),
    post("a file of a member", "files", 201, content=MAIN, headers=TAR, user="member", save={"other file": "hash"}),
    get("a file that does not exist", f"files/{NOBODY}", 404),
    post("a version without fields", VERSIONS, 400, {}),
    post("a version without a file", VERSIONS, 404, {**NEW_VERSION, "file_id": NOBODY}),
    post("a version with another name", VERSIONS, 400, {**NEW_VERSION, "name": "not ok!"}),
    post("a version of no template", VERSIONS, 404, {**NEW_VERSION, "template_id": NOBODY}),
    post("a version by a member", VERSIONS, 404, NEW_VERSION, user="member"),
    post("a version", VERSIONS, 201, FIRST_VERSION, save={"version": "id", "job": "job.id"}),
    get("a pending version", VERSION),
    get("a version of nobody, for a member", VERSION, 404, user="member"),
    get("a version that does not exist", f"templateversions/{NOBODY}", 404),
    get("a version by another name", "templateversions/nope", 400),
    get("no logs yet", f"{VERSION}/logs"),
    post("a version that nobody can import", VERSIONS, 201, {"name": "arm", **NEW_VERSION, "tags": {"env": "arm"}}),
    post(
        "a version for the daemons of a user",
        VERSIONS,
        201,
        {"name": "mine", **NEW_VERSION, "tags": {"scope": "user", "empty": ""}},
        save={"mine": "id"},
    ),
    patch("canceling", "templateversions/{mine}/cancel", 200),
    patch("canceling again", "templateversions/{mine}/cancel", 400),
    post("archiving a version of no template", "templateversions/{mine}/archive", 400),
    start("job", "plain"),
    get("a version during its import", VERSION),
    finish("job"),
    get("an imported version", VERSION),
    post("a template without fields", TEMPLATES, 400, {}),
    post("a template with another name", TEMPLATES, 400, {"name": "Not OK!", "template_version_id": "{version}"}),
    post("a template with a reserved name", TEMPLATES, 400, {"name": "new", "template_version_id": "{version}"}),
    post(
        "a template with other texts",
        TEMPLATES,
        400,
        {"name": "x", "template_version_id": "{version}", "description": "d" * 128, "display_name": " x"},
    ),
    post("a template without a version", TEMPLATES, 404, {"name": "x", "template_version_id": NOBODY}),
    post("a template by a member", TEMPLATES, 500, {"name": "x", "template_version_id": "{version}"}, user="member"),
    post(
        "a template with other settings",
        TEMPLATES,
        400,
        {
            "name": "x",
            "template_version_id": "{version}",
            "default_ttl_ms": -1,
            "failure_ttl_ms": -1,
            "max_port_share_level": "public",
            "cors_behavior": "x",
            "autostart_requirement": {"days_of_week": ["x"]},
            "autostop_requirement": {"days_of_week": [], "weeks": 17},
        },
    ),
    post("a template", TEMPLATES, 201, {"name": "gpu", "template_version_id": "{version}"}, save={"template": "id"}),
    post("a template with the same name", TEMPLATES, 409, {"name": "GPU", "template_version_id": "{version}"}),
    post("a template with the same version", TEMPLATES, 400, {"name": "x", "template_version_id": "{version}"}),
    get("the version of a template", VERSION),
    get("the version of a template, for a member", VERSION, user="member"),
    get("templates", "templates"),
    get("templates of a member", "templates", user="member"),
    get("templates without a token", "templates", 401, user=""),
    get("templates of an organization", TEMPLATES),
    get("deprecated templates", f"{TEMPLATES}?q=deprecated:true"),
    get("templates by another state", "templates?q=deprecated:nope", 400),
    get("templates by an unknown parameter", "templates?q=foo:bar", 400),
    get("a template by ID", TEMPLATE),
    get("a template by another name", "templates/nope", 400),
    get("a template that does not exist", f"templates/{NOBODY}", 404),
    get("a template by name", f"{TEMPLATES}/GPU"),
    get("a template by an unknown name", f"{TEMPLATES}/nope", 404),
    get("versions of a template", f"{TEMPLATE}/versions"),
    get("a version by name", f"{TEMPLATE}/versions/v1"),
    get("a version by name and template", f"{TEMPLATES}/gpu/versions/v1"),
    get("a version by an unknown name", f"{TEMPLATE}/versions/v9", 404),
    get("jobs with a template", JOBS),
    get("a daemon with a template", f"{DAEMONS}?ids={{plain}}"),
    post("a version with the same name", VERSIONS, 409, {"name": "v1", "template_id": "{template}", **NEW_VERSION}),
    post(
        "the second version",
        VERSIONS,
        201,
        {"name": "v2", "template_id": "{template}", **NEW_VERSION},
        save={"second version": "id", "second job": "job.id"},
    ),
    patch("promoting a pending version", f"{TEMPLATE}/versions", 403, {"id": "{second version}"}),
    patch("promoting nothing", f"{TEMPLATE}/versions", 400, {}),
    patch("promoting no version", f"{TEMPLATE}/versions", 404, {"id": NOBODY}),
    patch("promoting a version of no template", f"{TEMPLATE}/versions", 400, {"id": "{mine}"}),
    start("second job", "plain"),
    finish("second job"),
    patch("promoting, by a member", f"{TEMPLATE}/versions", 500, {"id": "{second version}"}, user="member"),
    patch("promoting", f"{TEMPLATE}/versions", 200, {"id": "{second version}"}),
    get("a template after a promotion", TEMPLATE),
    patch("a change of nothing", TEMPLATE, 200, {}),
    patch("a change", TEMPLATE, 200, SETTINGS),
    patch("a change back", TEMPLATE, 200, {"display_name": "", "activity_bump_ms": 60000}),
    patch("a change of the name", TEMPLATE, 200, {"name": "gpus"}),
    patch("a change of all settings", TEMPLATE, 200, ALL_SETTINGS),
    patch("a change of all settings to the same", TEMPLATE, 200, ALL_SETTINGS, agpl=304),
    get("a template after its changes", TEMPLATE),
    patch("a change to another name", TEMPLATE, 400, {"name": "Not OK!"}),
    patch(
        "a change to other settings",
        TEMPLATE,
        400,
        {
            "default_ttl_ms": -1,
            "failure_ttl_ms": 10,
            "time_til_dormant_ms": -1,
            "cors_behavior": "x",
            "max_port_share_level": "authenticated",
            "autostart_requirement": {"days_of_week": ["x"]},
            "autostop_requirement": {"days_of_week": ["sunday"], "weeks": 20},
        },
    ),
    patch("a change by a member", TEMPLATE, 500, {"icon": "/x.png"}, user="member"),
    post("archiving, by a member", f"{TEMPLATE}/versions/archive", 404, {"all": True}, user="member"),
    post("archiving the active version", "templateversions/{second version}/archive", 500),
    post("archiving failed versions", f"{TEMPLATE}/versions/archive", 200, {}),
    post("archiving all versions", f"{TEMPLATE}/versions/archive", 200, {"all": True}),
    get("versions without archived ones", f"{TEMPLATE}/versions"),
    get("versions with archived ones", f"{TEMPLATE}/versions?include_archived=true"),
    patch("promoting an archived version", f"{TEMPLATE}/versions", 400, {"id": "{version}"}),
    post("archiving again", f"{VERSION}/archive", 400),
    post("unarchiving", f"{VERSION}/unarchive", 200),
    post("unarchiving again", f"{VERSION}/unarchive", 400),
    get("roles", f"{TEMPLATE}/acl", 403, agpl=404),
    patch("a change of roles", f"{TEMPLATE}/acl", 403, {}, agpl=404),
    delete("deletion by a member", TEMPLATE, 403, user="member"),
    delete("deletion", TEMPLATE, 200),
    delete("deletion again", TEMPLATE, 404),
    get("no templates", TEMPLATES),
    get("a version of a deleted template", VERSION),
)
SCRIPT = (*ACCESS, *LICENSES, *ORGANIZATIONS, *REJECTIONS, *ERRORS, *QUEUE, *TEMPLATE_STEPS)
