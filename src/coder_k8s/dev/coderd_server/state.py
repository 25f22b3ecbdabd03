"""The state of the simulator, and methods for tests to change it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from coder_k8s.dev.coderd_server.health import Health
from coder_k8s.dev.coderd_server.licensing import (
    FEATURES,
    NOT_CONFIGURED,
    claims_of,
    entitlement,
    is_genuine,
    make_license,
)
from coder_k8s.dev.coderd_server.queue import Queue
from coder_k8s.dev.coderd_server.records import (
    Daemon,
    Organization,
    Proxy,
    StoredKey,
    StoredLicense,
    Switches,
    Token,
    User,
)
from coder_k8s.dev.coderd_server.tags import complete
from coder_k8s.dev.coderd_server.templates import Templates

RESERVED = {
    "built-in": "00000000-0000-0000-0000-000000000001",
    "user-auth": "00000000-0000-0000-0000-000000000002",
    "psk": "00000000-0000-0000-0000-000000000003",
}
BUILT_IN_KEY = RESERVED["built-in"]
RANKS = ("not_entitled", "grace_period", "entitled")


class State:
    """State of one coderd; `version` is 2.30.0, 2.36.1 or agpl."""

    def __init__(self, version: str, now: Callable[[], datetime]) -> None:
        self.version = version
        self.now = now
        self.switches = Switches()
        self.deployment_id = str(uuid4())
        self.organization_id = str(uuid4())
        self.organizations: dict[str, str] = {"coder": self.organization_id}
        self.organization_details: dict[str, Organization] = {}
        self.started_at = now()
        self.refreshed_at = now()
        self.features: dict[str, str] = {}
        self.not_configured = frozenset(NOT_CONFIGURED)
        self.users = 1
        self.replicas = 1
        self.tokens: dict[str, Token] = {}
        self.tokens_of_database: set[str] = set()
        self.database_url: str | None = None
        self.licenses: list[StoredLicense] = []
        self.keys: dict[str, StoredKey] = {}
        self.daemons: dict[str, Daemon] = {}
        self.proxies: dict[str, Proxy] = {}
        self.deleted_proxies: dict[str, Proxy] = {}
        self.wildcard_hostname = ""
        self.exhausted: set[tuple[str | None, str]] = set()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.presented: set[str] = set()
        """Every token and key in a request, valid or not."""
        self.owner = User("admin", ("owner",))
        self.token = self.add_token(self.owner)
        self.queue = Queue(now, self.default_organization, self.owner.id)
        self.templates = Templates(self.queue, self.owner, self.default_organization)
        self.health = Health(now)

    @property
    def is_enterprise(self) -> bool:
        return self.version != "agpl"

    @property
    def is_old(self) -> bool:
        return self.version != "2.36.1"

    @property
    def build_version(self) -> str:
        return "v2.30.0" if self.is_old else "v2.36.1"

    def add_token(self, user: User, token: str | None = None, expires: datetime | None = None) -> str:
        """Create a token for a user."""
        token = token or f"{uuid4().hex[:10]}-{uuid4().hex[:22]}"
        identifier, _, secret = token.partition("-")
        self.tokens[identifier] = Token(user, hashlib.sha256(secret.encode()).digest(), expires)
        return token

    def revoke_token(self, token: str) -> None:
        """Delete a token."""
        del self.tokens[token.partition("-")[0]]

    def set(self, **switches: Any) -> None:
        """Set some of the switches."""
        self.switches = replace(self.switches, **switches)

    def install_license(self, **claims: Any) -> str:
        """Add a license to the database, by default with all features."""
        jwt = make_license(self.now(), **claims)
        self.add_license(jwt)
        return jwt

    def add_license(self, jwt: str, uuid: str | None = None) -> StoredLicense:
        """Store a license without validation."""
        identifier = 1 + max((each.id for each in self.licenses), default=0)
        added = StoredLicense(identifier, uuid or claims_of(jwt)["jti"], jwt, self.now())
        self.licenses.append(added)
        return added

    def remove_licenses(self) -> None:
        """Delete all licenses."""
        self.licenses.clear()

    def entitlement(self, feature: str) -> str:
        """Return the combined entitlement for a feature; `features` takes precedence."""
        if feature in self.features:
            return self.features[feature]
        now = self.now()
        given = [entitlement(claims_of(each.jwt), feature, now) for each in self.licenses if is_genuine(each.jwt, now)]
        return max(given, key=RANKS.index, default="not_entitled")

    def feature_names(self) -> list[str]:
        """Return the features of this version."""
        return list(FEATURES) if self.is_old else sorted((*FEATURES, "service_accounts"))

    def add_organization(self, name: str) -> str:
        """Create an organization."""
        self.organizations[name.lower()] = organization = str(uuid4())
        return organization

    def default_organization(self) -> str:
        """Return the ID of the default organization, which a saved state replaces."""
        return self.organization_id

    def organization(self, organization: str) -> Organization:
        """Return an organization, by ID."""
        if (found := self.organization_details.get(organization)) is not None:
            return found
        name = self.organization_name(organization)
        text = "Builtin default organization." if organization == self.organization_id else ""
        return Organization(organization, name, name.title(), self.started_at, text)

    def put_organization(self, organization: Organization) -> None:
        """Add or replace an organization."""
        self.remove_organization(organization.id)
        self.organizations[organization.name.lower()] = organization.id
        self.organization_details[organization.id] = organization

    def remove_organization(self, organization: str) -> None:
        """Delete an organization."""
        self.organizations = {name: known for name, known in self.organizations.items() if known != organization}
        self.organization_details.pop(organization, None)

    def rename_organization(self, name: str, new: str) -> None:
        """Rename an organization; its ID does not change."""
        self.put_organization(replace(self.organization(self.organizations[name.lower()]), name=new))

    def organization_name(self, organization: str) -> str:
        """Return the name of an organization, by ID."""
        return next(name for name, known in self.organizations.items() if known == organization)

    def find_organization(self, name: str) -> str | None:
        """Return the ID of an organization, by ID or name."""
        known = {"default": self.organization_id, **self.organizations}
        return name.lower() if name.lower() in known.values() else known.get(name.lower())

    def place(self, name: str, organization: str = "") -> str:
        """Return the index of a key in `keys`: its name, prefixed by the organization if not the default one."""
        return name.lower() if organization in ("", self.organization_id) else f"{organization}/{name.lower()}"

    def add_key(self, name: str, tags: dict[str, str] | None = None, organization: str = "") -> str:
        """Create a provisioner key; names are stored in lower case and empty tags are dropped."""
        secret = (uuid4().hex + uuid4().hex)[:43]
        kept = {key: value for key, value in (tags or {}).items() if value}
        key = StoredKey(str(uuid4()), name.lower(), organization or self.organization_id, kept, secret, self.now())
        self.keys[self.place(name, organization)] = key
        return secret

    def with_reserved(self, organization: str, keys: Sequence[StoredKey]) -> list[StoredKey]:
        """Return the keys of an organization, and coderd's reserved keys."""
        if organization != self.organization_id:
            never = datetime.min.replace(tzinfo=UTC)
            return [*keys, StoredKey(RESERVED["user-auth"], "user-auth", organization, {}, "", never)]
        reserved = [StoredKey(key, name, organization, {}, "", self.started_at) for name, key in RESERVED.items()]
        return [*reserved, *keys]

    def organization_of(self, daemon: Daemon) -> str:
        """Return the organization of a daemon's key."""
        return next((key.organization for key in self.keys.values() if key.id == daemon.key), self.organization_id)

    def delete_key(self, name: str, organization: str = "") -> None:
        """Delete a provisioner key and its daemons."""
        key = self.keys.pop(self.place(name, organization))
        self.daemons = {each.id: each for each in self.daemons.values() if each.key != key.id}

    def connect_daemon(self, name: str, key: str | None = None, status: str = "idle", **fields: Any) -> str:
        """Connect a daemon with a key, or as a built-in daemon."""
        stored = None if key is None else self.keys[key]
        daemon = Daemon(
            id=str(uuid4()),
            name=name,
            key=stored.id if stored else BUILT_IN_KEY,
            status=status,
            tags=complete(stored.tags if stored else None),
            version=self.build_version,
            created_at=self.now(),
        )
        self.daemons[daemon.id] = replace(daemon, **fields)
        return daemon.id

    def log_in(self, name: str, secret: str) -> str:
        """Connect a daemon with a key; return an empty string if coderd rejects it."""
        place = next((place for place, key in self.keys.items() if key.secret == secret), None)
        return "" if place is None else self.connect_daemon(name, place)

    def set_daemon(self, daemon: str, status: str) -> None:
        """Set a daemon to idle, busy or offline."""
        self.daemons[daemon] = replace(self.daemons[daemon], status=status)

    def close_daemon(self, daemon: str) -> None:
        """Close the connection of a daemon; coderd still shows it as idle for 90 seconds, and then as offline."""
        self.daemons[daemon] = replace(self.daemons[daemon], gone_at=self.now())
        self.queue.lose_worker(daemon)

    def disconnect_daemon(self, daemon: str) -> None:
        """Delete a daemon."""
        del self.daemons[daemon]
        self.queue.lose_worker(daemon)

    def acquire_job(self, daemon: str) -> str:
        """Assign the next job to a daemon; return its ID, or an empty string if there is none."""
        row = self.daemons[daemon]
        job = self.queue.take_job(daemon, row.tags, self.organization_of(row))
        return "" if job is None else job.id

    def set_proxy(self, name: str, status: str, errors: Sequence[str] = (), warnings: Sequence[str] = ()) -> None:
        """Set the health of a workspace proxy: ok, unreachable, unhealthy or unregistered."""
        found = self.proxies[name]
        registered = status != "unregistered"
        self.proxies[name] = replace(
            found,
            status=status,
            errors=tuple(errors),
            warnings=tuple(warnings),
            url=f"https://{name}.example.com" if registered else found.url,
            version=self.build_version if registered else found.version,
        )

    def delete_proxy(self, name: str) -> None:
        """Delete a workspace proxy; coderd still returns it by ID."""
        found = self.proxies.pop(name)
        self.deleted_proxies[found.id] = replace(found, deleted=True)

    def count(self, method: str, route: str) -> int:
        """Return the number of requests for a route."""
        return self.requests[method, route]


def utc_now() -> datetime:
    return datetime.now(UTC)
