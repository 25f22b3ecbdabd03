"""What the simulator keeps about users, licenses, daemons and workspace proxies, and the faults that it can have."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

HEARTBEAT = timedelta(minutes=1)
STALE_AFTER = timedelta(seconds=90)


@dataclass(frozen=True)
class User:
    """A user of coderd; `sees_itself` is False for a token whose scope does not reach the user."""

    username: str
    roles: tuple[str, ...] = ()
    name: str = ""
    login_type: str = "password"
    status: str = "active"
    in_organization: bool = True
    sees_itself: bool = True
    email: str = ""
    id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def is_owner(self) -> bool:
        return "owner" in self.roles

    @property
    def reads_keys(self) -> bool:
        """Whether the user can read provisioner keys."""
        return not {"owner", "auditor"}.isdisjoint(self.roles)

    @property
    def sees_proxies(self) -> bool:
        """Whether the user can read workspace proxies, which depends only on the scope of the token."""
        return self.sees_itself


@dataclass(frozen=True)
class Token:
    """A session token, as stored by coderd."""

    user: User
    hashed_secret: bytes
    expires: datetime | None = None


@dataclass(frozen=True)
class StoredLicense:
    """A license in the database, valid or not."""

    id: int
    uuid: str
    jwt: str
    uploaded_at: datetime


@dataclass(frozen=True)
class Organization:
    """An organization, and the roles of its new members."""

    id: str
    name: str
    display_name: str
    created_at: datetime
    description: str = ""
    icon: str = ""
    member_roles: tuple[str, ...] = ("organization-workspace-access",)


@dataclass(frozen=True)
class StoredKey:
    """A provisioner key."""

    id: str
    name: str
    organization: str
    tags: dict[str, str]
    secret: str
    created_at: datetime


@dataclass(frozen=True)
class Daemon:
    """A provisioner daemon. Tests can set its status (idle, busy or offline); a job makes it busy, too."""

    id: str
    name: str
    key: str
    status: str
    tags: dict[str, str]
    version: str
    created_at: datetime
    gone_at: datetime | None = None
    """When its connection was closed."""
    provisioners: Sequence[str] | None = ("terraform",)
    api_version: str | None = None
    """None means the version of the server."""
    current_job: dict[str, Any] | None = None
    previous_job: dict[str, Any] | None = None

    def seen_at(self, now: datetime) -> datetime:
        """Return the last heartbeat, which coderd stores once per minute while the daemon is connected."""
        last = now if self.gone_at is None else self.gone_at
        if self.status == "offline":
            last = self.created_at
        return self.created_at + (last - self.created_at) // HEARTBEAT * HEARTBEAT

    def is_stale(self, now: datetime) -> bool:
        return self.status == "offline" or now - self.seen_at(now) > STALE_AFTER


@dataclass(frozen=True)
class Proxy:
    """A workspace proxy; it has a URL and a version after a pod has connected with its token."""

    id: str
    name: str
    display_name: str
    icon: str
    token: str
    status: str
    created_at: datetime
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    url: str = ""
    wildcard_hostname: str = ""
    version: str = ""
    deleted: bool = False


@dataclass
class Switches:
    """Simulated faults: latency, 429, 500, an unavailable database, closed connections.

    `unanswered` is a method whose requests are executed but get no response. With `sign_in_page`, a proxy responds to
    every request with 200 and an HTML page. `redirect_to` is the access URL to which coderd redirects every request, as
    with `CODER_REDIRECT_TO_ACCESS_URL`. `implicit_member` is the experiment of coderd for roles of new members.
    """

    latency: float = 0
    rate_limited: bool = False
    failing: bool = False
    database_down: bool = False
    cut: bool = False
    unanswered: str = ""
    sign_in_page: bool = False
    omits_proxies: bool = False
    implicit_member: bool = False
    redirect_to: str = ""
