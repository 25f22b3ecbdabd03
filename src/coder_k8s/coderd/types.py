"""Types of coderd's responses, with the fields that the operator reads."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec


class BuildInfo(msgspec.Struct, frozen=True):
    """Version and deployment of coderd."""

    version: str
    deployment_id: str = ""
    provisioner_api_version: str = ""


class Role(msgspec.Struct, frozen=True):
    """A site-wide role of a user."""

    name: str


class User(msgspec.Struct, frozen=True):
    """The user of a token."""

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
    refreshed_at: datetime
    warnings: list[str]
    errors: list[str]


class License(msgspec.Struct, frozen=True):
    """A stored license with its unverified claims."""

    id: int
    uuid: str
    uploaded_at: datetime
    claims: dict[str, Any]


class Organization(msgspec.Struct, frozen=True):
    """An organization; `default` in a path means the default organization."""

    id: str
    name: str
    display_name: str
    is_default: bool


class ProvisionerKey(msgspec.Struct, frozen=True):
    """A key with which external provisioner daemons authenticate; only the response to its creation has the secret."""

    id: str
    name: str
    organization: str
    created_at: datetime
    tags: dict[str, str]


class ProvisionerKeyList(NamedTuple):
    """The keys of an organization, and when coderd listed them, by its own clock; None if the response has no date."""

    keys: list[ProvisionerKey]
    listed_at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The secret of a new provisioner key."""

    key: str

    def __repr__(self) -> str:
        return "CreatedKey()"


class DaemonJob(msgspec.Struct, frozen=True):
    """The current job of a daemon."""

    id: str
    status: str


class ProvisionerDaemon(msgspec.Struct, frozen=True):
    """A provisioner daemon; its status is idle, busy or offline."""

    id: str
    name: str
    key_id: str
    created_at: datetime
    version: str
    api_version: str
    tags: dict[str, str]
    last_seen_at: datetime | None = None
    status: str | None = None
    key_name: str | None = None
    current_job: DaemonJob | None = None


class ProxyReport(msgspec.Struct, frozen=True):
    """Errors and warnings of the health check of a workspace proxy; a list may be null."""

    errors: list[str] | None = None
    warnings: list[str] | None = None


class ProxyStatus(msgspec.Struct, frozen=True):
    """The result of the last health check of a workspace proxy: ok, unreachable, unhealthy or unregistered."""

    status: str = ""
    report: ProxyReport = ProxyReport()
    checked_at: datetime | None = None


class WorkspaceProxy(msgspec.Struct, frozen=True):
    """A workspace proxy; coderd lists itself first, with the name `primary`."""

    id: str
    name: str
    display_name: str
    icon_url: str
    healthy: bool
    created_at: datetime | None = None
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
