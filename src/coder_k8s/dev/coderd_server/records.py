"""What the simulator keeps about users, licenses and workspace proxies, and the faults that it can have."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import uuid4


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
    with `CODER_REDIRECT_TO_ACCESS_URL`.
    """

    latency: float = 0
    rate_limited: bool = False
    failing: bool = False
    database_down: bool = False
    cut: bool = False
    unanswered: str = ""
    sign_in_page: bool = False
    omits_proxies: bool = False
    redirect_to: str = ""
