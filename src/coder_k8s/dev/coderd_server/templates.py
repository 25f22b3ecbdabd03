"""The templates of the simulator and their versions. A version is imported by a job that a daemon has to run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from coder_k8s.dev.coderd_server.queue import NO_TEMPLATE, Job, Queue
from coder_k8s.dev.coderd_server.records import User

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DEFAULTS: dict[str, Any] = {
    "display_name": "",
    "description": "",
    "icon": "",
    "default_ttl_ms": 0,
    "activity_bump_ms": 3600000,
    "time_til_autostop_notify_ms": 0,
    "autostop_requirement": {"days_of_week": [], "weeks": 1},
    "autostart_requirement": {"days_of_week": list(WEEKDAYS)},
    "allow_user_autostart": True,
    "allow_user_autostop": True,
    "allow_user_cancel_workspace_jobs": False,
    "failure_ttl_ms": 0,
    "time_til_dormant_ms": 0,
    "time_til_dormant_autodelete_ms": 0,
    "require_active_version": False,
    "deprecation_message": "",
    "max_port_share_level": "owner",
    "cors_behavior": "simple",
    "use_classic_parameter_flow": False,
    "disable_module_cache": False,
}
"""The settings of a new template, by their names in a response."""


@dataclass(frozen=True)
class Version:
    """A version of a template, or of none yet."""

    id: str
    organization: str
    name: str
    job: str
    author: User
    created_at: datetime
    updated_at: datetime
    template: str = ""
    message: str = ""
    provisioner: str = "terraform"
    archived: bool = False


@dataclass(frozen=True)
class Template:
    """A template with its settings and roles; `used` are the versions of the latest builds of its workspaces."""

    id: str
    organization: str
    name: str
    active: str
    author: User
    created_at: datetime
    updated_at: datetime
    settings: dict[str, Any] = field(default_factory=lambda: dict(DEFAULTS))
    groups: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    used: Sequence[str] = ()
    deleted: bool = False


class Templates:
    """All templates and versions, and methods for tests to change them."""

    def __init__(self, queue: Queue, owner: User, default_organization: Callable[[], str]) -> None:
        self._queue = queue
        self._owner = owner
        self._default_organization = default_organization
        self.templates: dict[str, Template] = {}
        self.versions: dict[str, Version] = {}
        self.files: dict[str, tuple[str, str]] = {}
        """The uploaded files: who uploaded it, and its digest."""
        self.archives: dict[str, bytes] = {}
        """The content of the uploaded tar archives."""
        self.groups: dict[str, str] = {}
        """The names of groups by ID, besides those of everyone."""
        self.uploads: dict[tuple[str, str], list[datetime]] = {}
        """When files were uploaded or read, by path and user."""

    def add_template(
        self, name: str, tags: Mapping[str, str] | None = None, organization: str = "", **settings: Any
    ) -> str:
        """Add a template whose first version was imported with these tags; return its ID."""
        where, now = organization or self._default_organization(), self._queue.now()
        version = self.add_version("v1", tags, organization=where)
        self._queue.finish_job(version.job)
        template = Template(str(uuid4()), where, name, version.id, self._owner, now, now, groups={where: "use"})
        self.put(replace(template, settings={**DEFAULTS, **settings}))
        return template.id

    def add_version(
        self,
        name: str,
        tags: Mapping[str, str] | None = None,
        *,
        organization: str = "",
        author: User | None = None,
        **fields: Any,
    ) -> Version:
        """Add a version and the job that imports it."""
        identifier, by, where = str(uuid4()), author or self._owner, organization or self._default_organization()
        file = {"file": fields.pop("file")} if "file" in fields else {}
        given = {"type": "template_version_import", "input": {"template_version_id": identifier}, **file}
        job = self._queue.add_job(tags, where, by.id, **given)
        now = self._queue.now()
        self.versions[identifier] = replace(Version(identifier, where, name, job, by, now, now), **fields)
        return self.versions[identifier]

    def put(self, template: Template) -> None:
        """Add or replace a template, and claim its active version."""
        self.templates[template.id] = template
        active = self.versions[template.active]
        if not active.template:
            self.versions[template.active] = replace(active, template=template.id, updated_at=self._queue.now())

    def activate_version(self, template: str, version: str) -> None:
        """Set the active version of a template."""
        self.put(replace(self.templates[template], active=version))

    def use_versions(self, template: str, versions: Sequence[str]) -> None:
        """Set the versions that workspaces of a template use."""
        self.templates[template] = replace(self.templates[template], used=tuple(versions))

    def find(self, organization: str, name: str) -> Template | None:
        """Return a template by name, in any case, unless it is deleted."""
        for each in self.templates.values():
            if each.organization == organization and each.name.lower() == name.lower() and not each.deleted:
                return each
        return None

    def versions_of(self, template: str) -> list[Version]:
        """Return the versions of a template, the oldest first."""
        found = [each for each in self.versions.values() if each.template == template]
        return sorted(found, key=lambda each: (each.created_at, each.id))

    def unused(self, template: str) -> list[Version]:
        """Return the versions that can be archived: imported, and neither active nor used by a workspace."""
        kept = {self.templates[template].active, *self.templates[template].used}
        return [
            each
            for each in self.versions_of(template)
            if not each.archived
            and each.id not in kept
            and self._queue.job(each.job).status not in ("pending", "running")
        ]

    def metadata(self, job: Job) -> dict[str, str]:
        """Return the names of a job's version and template."""
        version = self.versions.get(job.input.get("template_version_id", ""))
        if version is None:
            return job.metadata
        named = {**NO_TEMPLATE, "template_version_name": version.name}
        if (template := self.templates.get(version.template)) is None:
            return named
        settings = {f"template_{name}": template.settings[name] for name in ("display_name", "icon")}
        return {**named, "template_id": template.id, "template_name": template.name, **settings}
