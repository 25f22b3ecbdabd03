"""The calls of coderd's API for templates and their versions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from coder_k8s.coderd.caller import Caller, checked, decode
from coder_k8s.coderd.errors import Invalid, NotFound, Unavailable
from coder_k8s.coderd.types import ProvisionerJob, Template, TemplateVersion, Time, check_times
from coder_k8s.kube.messages import stable

_TEMPLATE = "/api/v2/templates/{}"
_VERSION = "/api/v2/templateversions/{}"
NO_ID = "00000000-0000-0000-0000-000000000000"
"""What coderd returns for a version without a template."""
PAGE = 25
"""Versions in one response, which has at most 10 MiB."""
VERSIONS_LIMIT = 10_000
"""Versions of one template that are read."""
JOB_LIMIT = 1000
"""The number of jobs in which a version without a template is searched."""


class ImportJob(ProvisionerJob, frozen=True):
    """A job that imports a version, with its result."""

    error: str = ""
    error_code: str = ""
    """Such as `REQUIRED_TEMPLATE_VARIABLES`."""
    completed_at: Time | None = None
    file_id: str = ""
    """The archive of the version."""
    input: dict[str, Any] = msgspec.field(default_factory=dict)
    """Has the ID of the version as `template_version_id`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_times(self.completed_at)


class MatchedProvisioners(msgspec.Struct, frozen=True):
    """The daemons whose tags match those of a job that waits."""

    count: int = 0
    available: int = 0


class Author(msgspec.Struct, frozen=True):
    """The user who created a version."""

    id: str = ""


class ImportedVersion(msgspec.Struct, frozen=True):
    """A version of a template, with its message and the result of its import."""

    id: str
    name: str
    job: ImportJob
    created_at: Time
    created_by: Author = Author()
    message: str = ""
    template_id: str | None = None
    archived: bool = False
    matched_provisioners: MatchedProvisioners | None = None
    """Only while the job waits, and not in a list."""


class ManagedTemplate(msgspec.Struct, frozen=True):
    """A template with all its settings, by their names in a response."""

    template: Template
    settings: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.template.id

    @property
    def name(self) -> str:
        return self.template.name


class NewVersion(NamedTuple):
    """What a version is created from; the values of variables may be secret."""

    name: str
    message: str
    file: str
    tags: Mapping[str, str]
    variables: Mapping[str, str]
    template: str = ""

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "message": self.message,
            "storage_method": "file",
            "file_id": self.file,
            "provisioner": "terraform",
            "tags": dict(self.tags),
            "user_variable_values": [{"name": name, "value": value} for name, value in self.variables.items()],
            **({"template_id": self.template} if self.template else {}),
        }


class GroupRole(msgspec.Struct, frozen=True):
    """A group, and its role for a template."""

    id: str
    name: str
    role: str = ""


class UserRole(msgspec.Struct, frozen=True):
    """A user, and their role for a template."""

    id: str
    username: str
    role: str = ""


class TemplateRoles(msgspec.Struct, frozen=True):
    """Who has a role for a template; the name of the second field is singular in coderd."""

    users: list[UserRole]
    group: list[GroupRole]


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log of a job."""

    output: str = ""
    stage: str = ""


class UploadedFile(msgspec.Struct, frozen=True):
    """A file; its ID has the name `hash`."""

    hash: str


class Workspaces(msgspec.Struct, frozen=True):
    """The number of workspaces that match a query."""

    count: int


class TemplateCalls(Caller):
    """The calls about templates."""

    async def templates(self) -> list[Template]:
        """Return the templates of all organizations."""
        return await self.call(list[Template], "GET", "/api/v2/templates")

    async def template_version(self, version: str) -> TemplateVersion:
        """Return a version of a template by ID."""
        return await self.call(TemplateVersion, "GET", _VERSION, version)

    async def templates_of(self, organization: str) -> list[ManagedTemplate]:
        """Return the templates of an organization, without those that are deprecated."""
        route = "/api/v2/organizations/{}/templates"
        return [_managed(route, each) for each in await self.call(list[dict[str, Any]], "GET", route, organization)]

    async def template(self, template: str) -> ManagedTemplate:
        """Return a template by ID, also if it is deprecated."""
        return _managed(_TEMPLATE, await self.call(dict[str, Any], "GET", _TEMPLATE, template))

    async def template_named(self, organization: str, name: str) -> ManagedTemplate:
        """Return a template by name, also if it is deprecated."""
        route = "/api/v2/organizations/{}/templates/{}"
        return _managed(route, await self.call(dict[str, Any], "GET", route, organization, name))

    async def upload(self, archive: bytes) -> str:
        """Store a tar archive and return its ID, which is the same for the same content."""
        route = "/api/v2/files"
        response = await self.send("POST", route, headers={"Content-Type": "application/x-tar"}, body=archive)
        return decode(UploadedFile, route, checked(route, response, (self._token,))).hash

    async def download(self, file: str) -> bytes:
        """Return the content of a file."""
        route = "/api/v2/files/{}"
        return checked(route, await self.send("GET", route, file), (self._token,))

    async def create_version(self, organization: str, version: NewVersion) -> ImportedVersion:
        """Create a version, whose import starts when a provisioner takes its job."""
        route = "/api/v2/organizations/{}/templateversions"
        secrets = (self._token, *version.variables.values())
        response = await self.send("POST", route, organization, body=version.body())
        return decode(ImportedVersion, route, checked(route, response, secrets))

    async def imported_version(self, version: str) -> ImportedVersion:
        """Return a version with the result of its import."""
        return await self.call(ImportedVersion, "GET", _VERSION, version)

    async def versions_of(self, template: str) -> list[ImportedVersion]:
        """Return all versions of a template, also those that are archived; each has its README, so in pages."""
        route, found = _TEMPLATE + "/versions", dict[str, ImportedVersion]()
        while True:
            known = len(found)
            query = {"include_archived": "true", "limit": str(PAGE), "offset": str(known)}
            page = await self.call(list[ImportedVersion], "GET", route, template, query=query)
            found.update({each.id: each for each in page})
            if len(page) < PAGE or len(found) == known:
                return list(found.values())
            if len(found) >= VERSIONS_LIMIT:
                raise Unavailable(f"{route}: the template has more than {VERSIONS_LIMIT} versions")

    async def version_logs(self, version: str) -> list[LogLine]:
        """Return the log of an import."""
        return await self.call(list[LogLine], "GET", _VERSION + "/logs", version)

    async def import_jobs(self, organization: str) -> list[ImportJob]:
        """Return the newest jobs of an organization, whatever their status is."""
        route, query = "/api/v2/organizations/{}/provisionerjobs", {"limit": str(JOB_LIMIT)}
        return await self.call(list[ImportJob], "GET", route, organization, query=query)

    async def create_template(
        self, organization: str, name: str, version: str, settings: Mapping[str, Any]
    ) -> ManagedTemplate:
        """Create a template with its first version."""
        route = "/api/v2/organizations/{}/templates"
        body = {**settings, "name": name, "template_version_id": version}
        return _managed(route, await self.call(dict[str, Any], "POST", route, organization, body=body))

    async def update_template(self, template: str, settings: Mapping[str, Any]) -> None:
        """Change the settings of a template; coderd before 2.34 resets those that are missing."""
        response = await self.send("PATCH", _TEMPLATE, template, body=dict(settings))
        if response.status != 304:  # 2.30, if nothing changes
            decode(object, _TEMPLATE, checked(_TEMPLATE, response, (self._token,)))

    async def promote(self, template: str, version: str) -> None:
        """Make a version the active version."""
        await self.call(object, "PATCH", _TEMPLATE + "/versions", template, body={"id": version})

    async def set_archived(self, version: str, *, archived: bool) -> None:
        """Archive or unarchive one version."""
        await self.execute("POST", _VERSION + ("/archive" if archived else "/unarchive"), version)

    async def delete_template(self, template: str) -> None:
        """Delete a template; raise `Invalid` while a workspace uses it."""
        await self.execute("DELETE", _TEMPLATE, template)

    async def template_roles(self, template: str) -> TemplateRoles:
        """Return who has a role for a template; raise `NotLicensed` without a license."""
        return await self.call(TemplateRoles, "GET", _TEMPLATE + "/acl", template)

    async def update_template_roles(self, template: str, roles: Mapping[str, Mapping[str, str]]) -> None:
        """Set roles by ID; an empty role removes one, and others do not change."""
        await self.call(object, "PATCH", _TEMPLATE + "/acl", template, body=roles)

    async def groups(self, organization: str) -> list[GroupRole]:
        """Return the groups of an organization."""
        return await self.call(list[GroupRole], "GET", "/api/v2/organizations/{}/groups", organization)

    async def find_user(self, name: str) -> UserRole | None:
        """Return a user by name; None if there is none."""
        try:
            return await self.call(UserRole, "GET", "/api/v2/users/{}", name)
        except (NotFound, Invalid):  # 2.30 responds to an unknown name with 400
            return None

    async def count_workspaces(self, organization: str, template: str) -> int:
        """Return how many workspaces use a template."""
        query = {"q": f"organization:{organization} template:{template}", "limit": "1"}
        return (await self.call(Workspaces, "GET", "/api/v2/workspaces", query=query)).count


def log_tail(lines: list[LogLine], limit: int) -> str:
    """Return the end of a log in one line, without empty lines."""
    text = "; ".join(each.output.strip() for each in lines if each.output.strip())
    text = stable("".join(char if char.isprintable() else " " for char in text))
    return text if len(text) <= limit else "…" + text[-limit:]


def _managed(route: str, body: dict[str, Any]) -> ManagedTemplate:
    try:
        return ManagedTemplate(msgspec.convert(body, Template), body)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{route}: invalid response: {error}") from None
