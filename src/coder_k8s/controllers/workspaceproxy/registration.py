"""Which workspace proxy there should be in coderd, and what to do next about it.

coderd shows the token of a proxy once, when it registers the proxy or makes a new token, and a new token throws out the
pods that run with the old one. So the next step follows from three things that survive a crash: what the status says,
which token our Secret holds, and which proxies coderd has. A token begins with the ID of its proxy, so nobody needs to
be asked whose it is.

    state       status says          Secret holds         coderd has               next step
    ---------   ------------------   ------------------   ----------------------   ----------------------------------
    Nothing     no proxy             no token of one      not the name             Begin: record the name
    Unrecorded  no proxy, or no ID   a proxy's token      that proxy               Adopt: record its ID
    Taken       no proxy             not its token        the name                 Blocked: somebody else made it
    Begun       name, but no ID      not its token        not the name             Create, and store its token
    Lost        name, but no ID      not its token        the name                 Adopt: ours, but its token got lost
    Ready       ID                   its token            that ID, as wanted       Keep
    Drifted     ID                   its token            that ID, not as wanted   Change, unless the name is taken
    Emptied     ID                   not its token        that ID                  Regenerate its token
    Deleted     ID                   anything             neither ID nor name      Begin
    Replaced    ID                   anything             the name, not that ID    Blocked: somebody else made it
    Elsewhere   ID or name, there    anything             not that ID              Leave: what is there retires

A proxy that retires is still ours by its ID: should it be wanted again before it is deregistered, it is adopted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.coderd.types import WorkspaceProxy

ICON = "/emojis/1f5fa.png"
"""What Coder's own command line proposes."""


class Wanted(NamedTuple):
    """What the spec asks for; what it leaves out is as coderd has it."""

    name: str
    display_name: str = ""
    icon: str = ""


class Recorded(NamedTuple):
    """What the status says; a registration that is begun and has no ID may or may not exist."""

    begun: bool = False
    id: str = ""
    here: bool = True
    """Whether it was made where one is wanted now."""
    retiring: frozenset[str] = frozenset()
    """IDs of proxies of ours that are on their way out, here or elsewhere."""


class Keep(NamedTuple):
    """Nothing to do."""

    proxy: WorkspaceProxy


class Adopt(NamedTuple):
    """Record the ID of a proxy that is ours."""

    proxy: WorkspaceProxy


class Begin(NamedTuple):
    """Record that a proxy is going to be registered."""


class Create(NamedTuple):
    """Register the proxy that is recorded."""


class Regenerate(NamedTuple):
    """Make a new token for a proxy whose token we lost."""

    proxy: WorkspaceProxy


class Change(NamedTuple):
    """Give a proxy the name, the display name and the icon of the spec."""

    proxy: WorkspaceProxy


class Leave(NamedTuple):
    """Let the recorded proxy retire: another coderd is to have one."""


class Blocked(NamedTuple):
    """The name is taken by a proxy that we did not register."""

    name: str


Step = Keep | Adopt | Begin | Create | Regenerate | Change | Leave | Blocked


def proxy_of(token: str) -> str:
    """The ID of the proxy that a token belongs to; empty when it is no such token."""
    proxy_id, _, rest = token.partition(":")
    return proxy_id if rest else ""


def wanted_by(proxy: CoderWorkspaceProxy) -> Wanted:
    given = proxy.spec.bootstrap
    if given is None:
        return Wanted(proxy.metadata.name)
    return Wanted(given.proxy_name or proxy.metadata.name, given.display_name, given.icon)


def next_step(wanted: Wanted, recorded: Recorded, held: str, stored: Sequence[WorkspaceProxy]) -> Step:
    """What to do next. `held` is the ID of the proxy whose token we have, `stored` are the proxies of coderd."""
    by_id = {proxy.id: proxy for proxy in stored}
    # coderd takes names that differ only in case for the same.
    named = next((proxy for proxy in stored if proxy.name.lower() == wanted.name.lower()), None)
    if (known := by_id.get(recorded.id)) is not None:
        return _keep(wanted, known, named, held)
    if recorded.begun and not recorded.here:
        return Leave()
    if not recorded.id:
        if held in by_id:
            return Adopt(by_id[held])
        if named is not None and (recorded.begun or named.id in recorded.retiring):
            return Adopt(named)
    if named is not None:
        return Blocked(named.name)
    return Create() if recorded.begun and not recorded.id else Begin()


def _keep(wanted: Wanted, known: WorkspaceProxy, named: WorkspaceProxy | None, held: str) -> Step:
    if held != known.id:
        return Regenerate(known)
    if named is not None and named.id != known.id:
        return Blocked(named.name)
    as_it_is = Wanted(known.name, known.display_name, known.icon_url)
    return Keep(known) if filled(wanted, known) == as_it_is else Change(known)


def filled(wanted: Wanted, known: WorkspaceProxy) -> Wanted:
    """What is wanted of a proxy that exists: all that the spec does not say stays."""
    return Wanted(wanted.name, wanted.display_name or known.display_name, wanted.icon or known.icon_url)
