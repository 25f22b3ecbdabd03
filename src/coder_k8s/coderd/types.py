"""Types of coderd's responses, with the fields that the operator reads."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec.structs import force_setattr

from coder_k8s.coderd.errors import sanitize

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a time zone, so that it can be compared with others."""


def check_times(*times: datetime | None) -> None:
    """Reject times of a job from which no other time can be computed; decoding fails then."""
    for time in times:
        if time is not None and not 2000 <= time.year < 9000:
            raise ValueError("a job has an impossible time")


class Shown(msgspec.Struct, frozen=True):
    """A response with texts that the operator copies into a status."""

    shown: ClassVar[tuple[str, ...]] = ()
    """The fields with these texts, which become printable and are truncated."""

    def __post_init__(self) -> None:
        for field in self.shown:
            force_setattr(self, field, sanitize(getattr(self, field)))


class BuildInfo(Shown, frozen=True):
    """Version and deployment of coderd."""

    shown: ClassVar[tuple[str, ...]] = ("version", "deployment_id")

    version: str
    deployment_id: str = ""
    provisioner_api_version: str = ""


class Role(msgspec.Struct, frozen=True):
    """A site-wide role of a user."""

    name: str


class User(Shown, frozen=True):
    """The user of a token."""

    shown: ClassVar[tuple[str, ...]] = ("username",)

    id: str
    username: str
    status: str
    login_type: str
    roles: list[Role]
    organization_ids: list[str]


class Feature(msgspec.Struct, frozen=True):
    """The entitlement of a feature: entitled, grace_period or not_entitled."""

    entitlement: str
    enabled: bool
    limit: int | None = None
    actual: int | None = None


class Entitlements(msgspec.Struct, frozen=True):
    """What all licenses together allow. Unlike the list of licenses, this is verified."""

    features: dict[str, Feature]
    has_license: bool
    trial: bool
    refreshed_at: Time
    warnings: list[str]
    errors: list[str]


class License(msgspec.Struct, frozen=True):
    """A stored license with its unverified claims."""

    id: int
    uuid: str
    uploaded_at: Time
    claims: dict[str, Any]


class Organization(Shown, frozen=True):
    """An organization; `default` in a path means the default organization."""

    shown: ClassVar[tuple[str, ...]] = ("name",)

    id: str
    name: str
    display_name: str
    is_default: bool


class ProvisionerKey(msgspec.Struct, frozen=True):
    """A key with which external provisioner daemons authenticate; only the response to its creation has the secret."""

    id: str
    name: str
    organization: str
    created_at: Time
    tags: dict[str, str]


class ProvisionerKeyList(msgspec.Struct, frozen=True):
    """The keys of an organization, and when coderd listed them, by its own clock; None if the response has no date."""

    keys: list[ProvisionerKey]
    listed_at: Time | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The secret of a new provisioner key."""

    key: str

    def __repr__(self) -> str:
        return "CreatedKey()"


class DaemonJob(msgspec.Struct, frozen=True):
    """The current job of a daemon."""

    id: str
    status: str


class ProvisionerDaemon(Shown, frozen=True):
    """A provisioner daemon; its status is idle, busy or offline."""

    shown: ClassVar[tuple[str, ...]] = ("version",)

    id: str
    name: str
    key_id: str
    created_at: Time
    version: str
    api_version: str
    tags: dict[str, str]
    last_seen_at: Time | None = None
    status: str | None = None
    key_name: str | None = None
    current_job: DaemonJob | None = None


class JobMetadata(msgspec.Struct, frozen=True):
    """What a job is about; a field that does not apply is empty."""

    template_id: str = ""
    template_name: str = ""
    template_version_name: str = ""
    workspace_id: str | None = None
    workspace_name: str = ""


class ProvisionerJob(msgspec.Struct, frozen=True):
    """A job for a provisioner daemon; it waits with the status pending, and runs with running or canceling."""

    id: str
    created_at: Time
    status: str
    tags: dict[str, str]
    """Always with `scope` and `owner`."""
    started_at: Time | None = None
    worker_id: str | None = None
    worker_name: str = ""
    """Name of the daemon that runs the job; empty if the daemon no longer exists."""
    initiator_id: str = ""
    type: str = ""
    metadata: JobMetadata = JobMetadata()

    def __post_init__(self) -> None:
        check_times(self.created_at, self.started_at)

    @property
    def waits(self) -> bool:
        return self.status == "pending"


class Template(Shown, frozen=True):
    """A template of workspaces."""

    shown: ClassVar[tuple[str, ...]] = ("name",)

    id: str
    name: str
    organization_id: str
    active_version_id: str


class TemplateVersion(msgspec.Struct, frozen=True):
    """A version of a template, with the job that imports it; its workspaces are built with the same tags."""

    id: str
    name: str
    job: ProvisionerJob


class WorkspaceBuild(msgspec.Struct, frozen=True):
    """A build of a workspace."""

    job: ProvisionerJob


class Workspace(msgspec.Struct, frozen=True):
    """A workspace with its last build."""

    id: str
    name: str
    owner_name: str
    organization_id: str
    template_name: str
    latest_build: WorkspaceBuild


class ProxyReport(msgspec.Struct, frozen=True):
    """Errors and warnings of the health check of a workspace proxy; a list may be null."""

    errors: list[str] | None = None
    warnings: list[str] | None = None


class ProxyStatus(msgspec.Struct, frozen=True):
    """The result of the last health check of a workspace proxy: ok, unreachable, unhealthy or unregistered."""

    status: str = ""
    report: ProxyReport = ProxyReport()
    checked_at: Time | None = None


class WorkspaceProxy(Shown, frozen=True):
    """A workspace proxy; coderd lists itself first, with the name `primary`."""

    shown: ClassVar[tuple[str, ...]] = ("version",)

    id: str
    name: str
    display_name: str
    icon_url: str
    healthy: bool
    created_at: Time | None = None
    """For `primary`, the time of the response by coderd's clock."""
    path_app_url: str = ""
    """Empty until a pod has registered with the token of the proxy."""
    version: str = ""
    deleted: bool = False
    status: ProxyStatus = ProxyStatus()


class Regions(msgspec.Struct, frozen=True):
    """The list of workspace proxies."""

    regions: list[WorkspaceProxy]


class ProxyRegistration(msgspec.Struct, frozen=True):
    """A workspace proxy with its session token, which is empty unless a new one was created."""

    proxy: WorkspaceProxy
    proxy_token: str

    def __repr__(self) -> str:
        return f"ProxyRegistration(proxy={self.proxy!r})"
