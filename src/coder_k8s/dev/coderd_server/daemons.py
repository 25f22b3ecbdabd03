"""The list of provisioner daemons.

A daemon is offline if it was not seen for 90 seconds. Like coderd, the simulator lists and names it so only on request,
and calls it busy as long as its job is not completed.
"""

from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.queries import Query, check_enum
from coder_k8s.dev.coderd_server.records import Daemon
from coder_k8s.dev.coderd_server.responses import HIDDEN, ErrorResponse, json_response
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.tags import covers

STATES = ("offline", "idle", "busy")


async def list_daemons(request: web.Request) -> web.Response:
    state, user, organization = enter_organization(request)
    if not user.is_owner:
        raise ErrorResponse(404, HIDDEN)
    query = Query(request.query)
    limit, ids, tags, offline = query.limit(), query.ids("ids"), query.tags(), query.boolean("offline")
    wanted, oldest = query.words("status"), query.duration("max_age")
    query.check()
    check_enum(wanted, STATES, "provisioner daemons", "provisioner_daemon_status")
    shown = [
        encode(state, each, with_offline=offline or "offline" in wanted)
        for each in sorted(state.daemons.values(), key=lambda each: each.created_at, reverse=True)
        if state.organization_of(each) == organization
        and (not ids or each.id in ids)
        and covers(each.tags, tags)
        and (not oldest or state.now() - each.seen_at(state.now()) <= oldest)
        and is_listed(state, each, wanted, offline)
    ]
    return json_response(shown[:limit])


def is_listed(state: State, daemon: Daemon, wanted: set[str], offline: bool) -> bool:
    """Return whether a list contains a daemon; with `offline`, it contains all that are offline."""
    stale = daemon.is_stale(state.now())
    if stale and not offline and "offline" not in wanted:
        return False
    return not wanted or stale or wire.daemon(state, daemon)["status"] in wanted


def encode(state: State, daemon: Daemon, *, with_offline: bool) -> dict[str, Any]:
    body = wire.daemon(state, daemon)
    shown_offline = with_offline and body["status"] != "busy" and daemon.is_stale(state.now())
    return {**body, "status": "offline"} if shown_offline else body
