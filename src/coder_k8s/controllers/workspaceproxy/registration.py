"""Which workspace proxy there should be in coderd, and what to do next about it.

coderd shows the token of a proxy once, when it registers the proxy or makes a new token, and a new token disconnects
the pods that run with the old one. So the next step follows from what survives a crash: what the status says, which
token our Secret holds, which proxies coderd has and which of them other objects claim. A token begins with the ID of
its proxy.

A proxy belongs to this object if the status has its ID. coderd does not know who registered a proxy, so a name without
an ID (a crash, a lost answer) is weak evidence. It is recorded again before every request, and counts for a proxy that
coderd created within a minute after that, that no pod has used yet, because nobody else has its token, and that no
other object claims. Every other proxy of that name is foreign: it is never changed or deleted, unless the object has
the annotation `coder.com/adopt`. That takes over a proxy of the name that no other object claims and that does not run:
nothing shows whether this operator registered it earlier, but pods run with the token of one that is `ok`.

    state       status says          Secret holds      coderd has                next step
    ----------  -------------------  ----------------  ------------------------  ---------------------------------
    Nothing     no ID, no name       no token of one   not the name              Begin: record the name
    Unrecorded  no ID                a proxy's token   that proxy, of the name   Adopt: record its ID
    Begun       no ID, but a name    not its token     not the name              Create: record the name again first
    Lost        no ID, but a name    not its token     the name, new and unused  Adopt: the answer got lost
    Foreign     no ID, but a name    not its token     the name, old or in use   Forget the name
    Renamed     no ID, another name  not its token     not that name             Forget the name
    Taken       no ID, no name       not its token     the name                  Blocked, or Adopt if asked to
    Ready       ID                   its token         that ID, as wanted        Keep
    Drifted     ID                   its token         that ID, not as wanted    Change, unless the name is taken
    Emptied     ID                   not its token     that ID                   Regenerate its token
    Shared      ID of an older one   anything          that ID                   Forget the ID
    Deleted     ID                   anything          neither ID nor name       Begin
    Replaced    ID                   anything          the name, not that ID     Blocked, or Adopt if asked to
    Elsewhere   ID or name, there    anything          not that ID               Leave: what is there retires

Adopt needs that no other object claims the proxy; "if asked to" also that coderd does not report it as `ok`, unless the
Secret holds its token. A proxy that retires is still this object's by its ID: should it be
wanted again before it is deregistered, it is adopted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.coderd.types import WorkspaceProxy

ICON = "/emojis/1f5fa.png"
"""What Coder's own command line proposes."""
PRIMARY = "primary"
"""The proxy that is coderd itself."""
WINDOW = timedelta(minutes=1)
"""How long after a name is recorded coderd may still carry out the request; the operator waits for 15 seconds."""


class Wanted(NamedTuple):
    """What the spec asks for; what it leaves out is as coderd has it."""

    name: str
    display_name: str = ""
    icon: str = ""
    adopt: bool = False
    """Whether a proxy of that name may be taken over."""


class Recorded(NamedTuple):
    """What the status says; a name without an ID may or may not have been registered."""

    name: str = ""
    id: str = ""
    since: datetime | None = None
    """When the name was recorded, by coderd's clock."""
    here: bool = True
    """Whether it was made where one is wanted now."""
    retiring: frozenset[str] = frozenset()
    """IDs of proxies of this object that are on their way out, here or elsewhere."""

    def accounts_for(self, proxy: WorkspaceProxy) -> bool:
        """Whether the record of a name, without an ID, explains a proxy: created just then and never used."""
        if self.since is None or proxy.created_at is None:
            return False
        fresh = self.since <= proxy.created_at < self.since + WINDOW
        return fresh and not proxy.path_app_url and _same(proxy.name, self.name)


class Claims(NamedTuple):
    """What other objects have recorded."""

    ids: frozenset[str] = frozenset()
    older_ids: frozenset[str] = frozenset()
    """Those that an older object has recorded as its own."""
    names: frozenset[str] = frozenset()
    """Names, in lower case, that older objects ask for at the same coderd and have no ID of yet."""

    def allow(self, proxy: WorkspaceProxy) -> bool:
        """Whether an object may record a proxy as its own."""
        name = proxy.name.lower()
        return name != PRIMARY and proxy.id not in self.ids and name not in self.names


@dataclass(frozen=True)
class Keep:
    """Nothing to do."""

    proxy: WorkspaceProxy


@dataclass(frozen=True)
class Adopt:
    """Record the ID of a proxy that is this object's, or that it was asked to take over."""

    proxy: WorkspaceProxy
    requested: bool = False


@dataclass(frozen=True)
class Begin:
    """Record that a proxy is going to be registered."""


@dataclass(frozen=True)
class Create:
    """Register the proxy that is recorded."""


@dataclass(frozen=True)
class Regenerate:
    """Make a new token for a proxy whose token we lost."""

    proxy: WorkspaceProxy


@dataclass(frozen=True)
class Change:
    """Give a proxy the name, the display name and the icon of the spec."""

    proxy: WorkspaceProxy


@dataclass(frozen=True)
class Leave:
    """Let the recorded proxy retire: another coderd is to have one."""


@dataclass(frozen=True)
class Forget:
    """Take back a record of what is not this object's."""


@dataclass(frozen=True)
class Blocked:
    """The name is taken by a proxy that this object did not register."""

    name: str
    claimed: bool = False
    """Whether another object claims it."""
    adoptable: bool = False
    """Whether the annotation would let this object take it over."""
    in_use: bool = False
    """Whether it has to be stopped before that."""


Step = Keep | Adopt | Begin | Create | Regenerate | Change | Leave | Forget | Blocked


def proxy_of(token: str) -> str:
    """The ID of the proxy that a token belongs to; empty when it is no such token."""
    proxy_id, _, rest = token.partition(":")
    return proxy_id if rest else ""


def wanted_by(proxy: CoderWorkspaceProxy, *, adopt: bool = False) -> Wanted:
    given = proxy.spec.bootstrap
    if given is None:
        return Wanted(proxy.metadata.name, adopt=adopt)
    return Wanted(given.proxy_name or proxy.metadata.name, given.display_name, given.icon, adopt)


def next_step(wanted: Wanted, recorded: Recorded, held: str, stored: Sequence[WorkspaceProxy], claims: Claims) -> Step:
    """What to do next. `held` is the ID of the proxy whose token we have, `stored` are the proxies of coderd."""
    stored = [proxy for proxy in stored if proxy.id]
    known = next((proxy for proxy in stored if proxy.id == recorded.id), None)
    named = find_named(stored, wanted.name)
    if known is not None:
        return Forget() if known.id in claims.older_ids else _keep(wanted, known, named, held)
    if (recorded.id or recorded.name) and not recorded.here:
        return Leave()
    if not recorded.id:
        for proxy in stored:
            if claims.allow(proxy) and _is_ours(wanted, recorded, held, proxy):
                return Adopt(proxy)
        if recorded.name and (find_named(stored, recorded.name) or not _same(recorded.name, wanted.name)):
            return Forget()
    if named is not None:
        return _taken(wanted, named, held, claims)
    return Create() if recorded.name and not recorded.id else Begin()


def find_named(stored: Sequence[WorkspaceProxy], name: str) -> WorkspaceProxy | None:
    """The proxy of that name; coderd takes names that differ only in case for the same."""
    return next((proxy for proxy in stored if _same(proxy.name, name)), None)


def _is_ours(wanted: Wanted, recorded: Recorded, held: str, proxy: WorkspaceProxy) -> bool:
    """Whether a proxy whose ID is not recorded belongs to this object."""
    if recorded.accounts_for(proxy):
        return True
    if _same(proxy.name, wanted.name):
        return proxy.id == held or proxy.id in recorded.retiring
    return proxy.id == held and _same(proxy.name, recorded.name)


def _taken(wanted: Wanted, named: WorkspaceProxy, held: str, claims: Claims) -> Step:
    if not claims.allow(named):
        return Blocked(named.name, claimed=named.name.lower() != PRIMARY)
    in_use = named.status.status == "ok" and named.id != held
    if wanted.adopt and not in_use:
        return Adopt(named, requested=True)
    return Blocked(named.name, adoptable=True, in_use=in_use)


def _keep(wanted: Wanted, known: WorkspaceProxy, named: WorkspaceProxy | None, held: str) -> Step:
    if held != known.id:
        return Regenerate(known)
    if named is not None and named.id != known.id:
        return Blocked(named.name)
    as_it_is = (known.name, known.display_name, known.icon_url)
    want = filled(wanted, known)
    return Keep(known) if (want.name, want.display_name, want.icon) == as_it_is else Change(known)


def filled(wanted: Wanted, known: WorkspaceProxy) -> Wanted:
    """What is wanted of a proxy that exists: all that the spec does not say stays."""
    return Wanted(wanted.name, wanted.display_name or known.display_name, wanted.icon or known.icon_url)


def _same(name: str, other: str) -> bool:
    return name.lower() == other.lower()
