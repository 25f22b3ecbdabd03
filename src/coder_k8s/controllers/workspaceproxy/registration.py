"""Decides the next step towards the registration of a workspace proxy in coderd.

coderd returns the token of a proxy only once, when it registers the proxy or regenerates the token. A new token
disconnects the pods that use the old one. So the next step depends only on what survives a crash: the status, the token
in the Secret, the proxies in coderd, and the claims of other objects. A token starts with the ID of its proxy.

A proxy belongs to this object if the status has its ID. coderd does not store who registered a proxy, so a recorded
name without an ID (after a crash or a lost response) proves little. It is recorded again before every request. A proxy
of that name belongs to this object if coderd created it within a minute after that, no pod has used it, and no other
object claims it. Every other proxy of that name is foreign. It is never changed or deleted, unless the object has the
annotation `coder.com/adopt`: then a proxy of the name is adopted if no other object claims it and coderd does not
report it as `ok`, which means that pods use its token.

    state       status has           Secret has        coderd has                next step
    ----------  -------------------  ----------------  ------------------------  ---------------------------------
    Nothing     no ID, no name       no token of one   not the name              RecordIntent: record the name
    Unrecorded  no ID                a proxy's token   that proxy, of the name   Adopt: record its ID
    Pending     no ID, but a name    not its token     not the name              Create: record the name again first
    Lost        no ID, but a name    not its token     the name, new and unused  Adopt: the response was lost
    Foreign     no ID, but a name    not its token     the name, old or in use   Forget the name
    Renamed     no ID, another name  not its token     not that name             Forget the name
    Taken       no ID, no name       not its token     the name                  NameConflict, or Adopt if annotated
    Ready       ID                   its token         that ID, as wanted        Keep
    Drifted     ID                   its token         that ID, not as wanted    Change, unless the name is taken
    Emptied     ID                   not its token     that ID                   Regenerate its token
    Shared      ID of an older one   anything          that ID                   Forget the ID
    Deleted     ID                   anything          neither ID nor name       RecordIntent
    Replaced    ID                   anything          the name, not that ID     NameConflict, or Adopt if annotated
    Elsewhere   at another coderd    anything          not that ID               Retire the recorded proxy

Adopt requires that no other object claims the proxy; "if annotated" also that coderd does not report it as `ok`, unless
the Secret holds its token. A retiring proxy still belongs to this object: if the spec requires it again before it is
deregistered, it is adopted.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.coderd.types import WorkspaceProxy

ICON = "/emojis/1f5fa.png"
"""The default of Coder's command line."""
PRIMARY = "primary"
"""The proxy that is coderd itself."""
WINDOW = timedelta(minutes=1)
"""How long after a name is recorded coderd may still execute the request; the request times out after 15 seconds."""


class Wanted(NamedTuple):
    """The proxy that the spec requires; an empty field keeps the value in coderd."""

    name: str
    display_name: str = ""
    icon: str = ""
    adopt: bool = False
    """Whether an existing proxy of that name may be adopted."""


class Recorded(NamedTuple):
    """The proxy that the status records; a name without an ID may not be registered."""

    name: str = ""
    id: str = ""
    since: datetime | None = None
    """When the name was recorded, by coderd's clock."""
    here: bool = True
    """Whether it is at the coderd of the spec."""
    retiring: frozenset[str] = frozenset()
    """IDs of the retiring proxies of this object, at any coderd."""

    def accounts_for(self, proxy: WorkspaceProxy) -> bool:
        """Whether a recorded name without an ID proves ownership: the proxy was created just then and never used."""
        if self.since is None or proxy.created_at is None:
            return False
        fresh = self.since <= proxy.created_at < self.since + WINDOW
        return fresh and not proxy.path_app_url and _same(proxy.name, self.name)


class Claims(msgspec.Struct, frozen=True):
    """What other objects have recorded."""

    ids: frozenset[str] = frozenset()
    older_ids: frozenset[str] = frozenset()
    """IDs that older objects record as their current proxy."""
    names: frozenset[str] = frozenset()
    """Names, in lower case, that older objects without an ID claim at the same coderd."""

    def allow(self, proxy: WorkspaceProxy) -> bool:
        """Whether an object may record a proxy as its own."""
        name = proxy.name.lower()
        return name != PRIMARY and proxy.id not in self.ids and name not in self.names


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do."""

    proxy: WorkspaceProxy


class Adopt(msgspec.Struct, frozen=True):
    """Record the ID of a proxy that belongs to this object, or that the annotation adopts."""

    proxy: WorkspaceProxy
    requested: bool = False


class RecordIntent(msgspec.Struct, frozen=True):
    """Record the name of a proxy before it is registered."""


class Create(msgspec.Struct, frozen=True):
    """Register the recorded proxy."""


class Regenerate(msgspec.Struct, frozen=True):
    """Regenerate the token of a proxy, because the Secret does not have it."""

    proxy: WorkspaceProxy


class Change(msgspec.Struct, frozen=True):
    """Update the name, the display name and the icon of a proxy to those of the spec."""

    proxy: WorkspaceProxy


class Retire(msgspec.Struct, frozen=True):
    """Retire the recorded proxy, because the spec names another coderd."""


class Forget(msgspec.Struct, frozen=True):
    """Remove the record of a proxy that does not belong to this object."""


class NameConflict(msgspec.Struct, frozen=True):
    """A proxy that this object did not register has the name."""

    name: str
    claimed: bool = False
    """Whether another object claims it."""
    adoptable: bool = False
    """Whether the annotation would adopt it."""
    in_use: bool = False
    """Whether it must be stopped before that."""


Step = Keep | Adopt | RecordIntent | Create | Regenerate | Change | Retire | Forget | NameConflict


def proxy_of(token: str) -> str:
    """The ID of the proxy that a token belongs to; empty if it is not a token of a proxy."""
    proxy_id, _, rest = token.partition(":")
    return proxy_id if rest else ""


def wanted_by(proxy: CoderWorkspaceProxy, *, adopt: bool = False) -> Wanted:
    given = proxy.spec.bootstrap
    if given is None:
        return Wanted(proxy.metadata.name, adopt=adopt)
    return Wanted(given.proxy_name or proxy.metadata.name, given.display_name, given.icon, adopt)


def next_step(wanted: Wanted, recorded: Recorded, held: str, stored: Sequence[WorkspaceProxy], claims: Claims) -> Step:
    """The next step. `held` is the ID of the proxy whose token is in the Secret, `stored` are the proxies of coderd."""
    stored = [proxy for proxy in stored if proxy.id]
    known = next((proxy for proxy in stored if proxy.id == recorded.id), None)
    named = find_named(stored, wanted.name)
    if known is not None:
        return Forget() if known.id in claims.older_ids else _keep(wanted, known, named, held)
    if (recorded.id or recorded.name) and not recorded.here:
        return Retire()
    if not recorded.id:
        for proxy in stored:
            if claims.allow(proxy) and _is_owned(wanted, recorded, held, proxy):
                return Adopt(proxy)
        if recorded.name and (find_named(stored, recorded.name) or not _same(recorded.name, wanted.name)):
            return Forget()
    if named is not None:
        return _taken(wanted, named, held, claims)
    return Create() if recorded.name and not recorded.id else RecordIntent()


def find_named(stored: Sequence[WorkspaceProxy], name: str) -> WorkspaceProxy | None:
    """The proxy of that name; coderd ignores case."""
    return next((proxy for proxy in stored if _same(proxy.name, name)), None)


def _is_owned(wanted: Wanted, recorded: Recorded, held: str, proxy: WorkspaceProxy) -> bool:
    """Whether a proxy whose ID is not recorded belongs to this object."""
    if recorded.accounts_for(proxy):
        return True
    if _same(proxy.name, wanted.name):
        return proxy.id == held or proxy.id in recorded.retiring
    return proxy.id == held and _same(proxy.name, recorded.name)


def _taken(wanted: Wanted, named: WorkspaceProxy, held: str, claims: Claims) -> Step:
    if not claims.allow(named):
        return NameConflict(named.name, claimed=named.name.lower() != PRIMARY)
    in_use = named.status.status == "ok" and named.id != held
    if wanted.adopt and not in_use:
        return Adopt(named, requested=True)
    return NameConflict(named.name, adoptable=True, in_use=in_use)


def _keep(wanted: Wanted, known: WorkspaceProxy, named: WorkspaceProxy | None, held: str) -> Step:
    if held != known.id:
        return Regenerate(known)
    if named is not None and named.id != known.id:
        return NameConflict(named.name)
    current = (known.name, known.display_name, known.icon_url)
    want = with_defaults(wanted, known)
    return Keep(known) if (want.name, want.display_name, want.icon) == current else Change(known)


def with_defaults(wanted: Wanted, known: WorkspaceProxy) -> Wanted:
    """The wanted proxy, with the existing values of fields that the spec does not set."""
    return Wanted(wanted.name, wanted.display_name or known.display_name, wanted.icon or known.icon_url)


def _same(name: str, other: str) -> bool:
    return name.lower() == other.lower()
