"""The routes of the health report, which only owners can read."""

import json
from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.handlers import STATE
from coder_k8s.dev.coderd_server.responses import ErrorResponse, authenticate, json_response, require_owner
from coder_k8s.dev.coderd_server.state import State

NO_DAEMONS = {"code": "EPD01", "message": "No active provisioner daemons found!"}


async def get_report(request: web.Request) -> web.Response:
    state = enter(request)
    if state.health.timed_out:
        raise ErrorResponse(503, "Healthcheck timed out.", state.health.timed_out)
    url = f"http://{request.host}"
    report = state.health.report(live(state, url), force=request.query.get("force") == "true")
    body = {"time": wire.time(state.health.checked_at), **report, "coder_version": state.build_version}
    return json_response(json.loads(json.dumps(body).replace("{url}", url)))


async def get_settings(request: web.Request) -> web.Response:
    return json_response({"dismissed_healthchecks": enter(request).health.dismissed})


def enter(request: web.Request) -> State:
    state = request.app[STATE]
    require_owner(authenticate(state, request))
    return state


def live(state: State, url: str) -> dict[str, dict[str, Any]]:
    """Return the sections about proxies and daemons."""
    listed = [wire.primary_proxy(state, url), *(wire.proxy(each) for each in state.proxies.values())]
    proxies = listed if state.is_enterprise else []
    unsaid = {"key_name": None, "status": None, "current_job": None, "previous_job": None}
    items = [
        {"provisioner_daemon": {**wire.daemon(state, each), **unsaid}, "warnings": []}
        for each in state.daemons.values()
        if not each.is_stale(state.now())
    ]
    daemons = {"severity": "ok" if items else "error", "warnings": [] if items else [NO_DAEMONS], "items": items}
    return {"workspace_proxy": {"workspace_proxies": {"regions": proxies}}, "provisioner_daemons": daemons}
