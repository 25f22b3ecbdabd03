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
        """Whether provisioner keys are shown; to make one takes more."""
        return not {"owner", "auditor"}.isdisjoint(self.roles)

    @property
    def sees_proxies(self) -> bool:
        """Every user may read workspace proxies, unless the scope of the token excludes it."""
        return self.sees_itself


@dataclass(frozen=True)
class Token:
    """A session token, kept as coderd keeps it."""

    user: User
    hashed_secret: bytes
    expires: datetime | None = None


@dataclass(frozen=True)
class StoredLicense:
    """A license in the database, genuine or not."""

    id: int
    uuid: str
    jwt: str
    uploaded_at: datetime


@dataclass(frozen=True)
class Proxy:
    """A workspace proxy; it has a URL and a version once a pod has registered itself with its token."""

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
    """What goes wrong: seconds before each answer, 429, 500, no database, connections cut without an answer.

    `unanswered` is a method whose requests are carried out, and then cut without an answer. With `sign_in_page`,
    somebody before coderd answers everything with 200 and a page in HTML. `redirect_to` is the access URL to which
    coderd redirects everything, as with `CODER_REDIRECT_TO_ACCESS_URL`.
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
