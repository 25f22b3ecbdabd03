"""What coderd answers: only the fields that the operator reads; all others are ignored."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec


class BuildInfo(msgspec.Struct, frozen=True):
    """Which coderd answers."""

    version: str
    deployment_id: str = ""
    provisioner_api_version: str = ""


class Role(msgspec.Struct, frozen=True):
    """A site-wide role of a user."""

    name: str


class User(msgspec.Struct, frozen=True):
    """Who a token belongs to."""

    id: str
    username: str
    status: str
    login_type: str
    roles: list[Role]
    organization_ids: list[str]


class Feature(msgspec.Struct, frozen=True):
    """Whether a licensed feature may be used: entitled, grace_period or not_entitled."""

    entitlement: str
    enabled: bool
    limit: int | None = None
    actual: int | None = None


class Entitlements(msgspec.Struct, frozen=True):
    """What all licenses together allow; the truth about a license is here, not in the list of licenses."""

    features: dict[str, Feature]
    has_license: bool
    trial: bool
    refreshed_at: datetime
    warnings: list[str]
    errors: list[str]


class License(msgspec.Struct, frozen=True):
    """A stored license with its claims, which coderd lists without verifying them."""

    id: int
    uuid: str
    uploaded_at: datetime
    claims: dict[str, Any]


class Organization(msgspec.Struct, frozen=True):
    """An organization; `default` in a path names the default one."""

    id: str
    name: str
    display_name: str
    is_default: bool


class ProvisionerKey(msgspec.Struct, frozen=True):
    """A key that external provisioner daemons log in with; its secret is shown only once, on creation."""

    id: str
    name: str
    organization: str
    created_at: datetime
    tags: dict[str, str]


class DatedKeys(NamedTuple):
    """The keys of an organization, and the time by coderd's clock when it listed them, if it says so."""

    keys: list[ProvisionerKey]
    at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The secret of a new provisioner key."""

    key: str

    def __repr__(self) -> str:
        return "CreatedKey()"


class DaemonJob(msgspec.Struct, frozen=True):
    """The job that a daemon works on."""

    id: str
    status: str


class ProvisionerDaemon(msgspec.Struct, frozen=True):
    """A provisioner daemon as coderd sees it: idle, busy or offline."""

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
    """What coderd found wrong with a workspace proxy; a list may be null."""

    errors: list[str] | None = None
    warnings: list[str] | None = None


class ProxyStatus(msgspec.Struct, frozen=True):
    """The result of coderd's last look at a workspace proxy: ok, unreachable, unhealthy or unregistered."""

    status: str = ""
    report: ProxyReport = ProxyReport()
    checked_at: datetime | None = None


class WorkspaceProxy(msgspec.Struct, frozen=True):
    """A workspace proxy; the first of the list is coderd itself, named `primary`."""

    id: str
    name: str
    display_name: str
    icon_url: str
    healthy: bool
    created_at: datetime | None = None
    """That of coderd itself is the time of the answer, by coderd's clock."""
    path_app_url: str = ""
    """Empty until a pod has registered itself with the token of the proxy."""
    version: str = ""
    deleted: bool = False
    status: ProxyStatus = ProxyStatus()


class Regions(msgspec.Struct, frozen=True):
    """The list of workspace proxies."""

    regions: list[WorkspaceProxy]


class ProxyRegistration(msgspec.Struct, frozen=True):
    """A workspace proxy with its session token, which is empty unless a new one was made."""

    proxy: WorkspaceProxy
    proxy_token: str

    def __repr__(self) -> str:
        return f"ProxyRegistration(proxy={self.proxy!r})"
