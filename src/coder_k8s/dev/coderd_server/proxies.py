"""The routes of workspace proxies.

Any user may read them; only an owner may change them. coderd checks that when it writes to its database, so a refusal
is a 500 to POST, and the 404 of a proxy that does not exist to PATCH and DELETE. A proxy that is deleted leaves the
list and frees its name, but its ID is still found.
"""

from dataclasses import replace
from typing import Any
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.handlers import STATE, read
from coder_k8s.dev.coderd_server.records import Proxy, User
from coder_k8s.dev.coderd_server.responses import (
    HIDDEN,
    ErrorResponse,
    authenticate,
    forbidden_write,
    invalid_field,
    json_response,
    missing_fields,
    require_feature,
)
from coder_k8s.dev.coderd_server.state import State

NAME_INDEX = 'pq: duplicate key value violates unique constraint "workspace_proxies_lower_name_idx"'
REQUIRED = ("id", "name", "display_name", "icon")


async def list_proxies(request: web.Request) -> web.Response:
    state, user = enter_proxies(request)
    visible = state.proxies.values() if user.sees_proxies and not state.switches.omits_proxies else ()
    return json_response({"regions": [primary(request), *(wire.proxy(each) for each in visible)]})


async def create_proxy(request: web.Request) -> web.Response:
    state, user = enter_proxies(request)
    body = await read(request)
    name = body.get("name", "")
    if not name:
        raise missing_fields("name")
    if name.lower() == "primary":
        message, detail = (
            'The name "primary" is reserved for the primary region.',
            "Cannot name a workspace proxy 'primary'.",
        )
        raise invalid_field(message, "name", "Reserved name", detail)
    if not user.is_owner:
        raise forbidden_write()
    if name.lower() in state.proxies:
        raise ErrorResponse(409, f'Workspace proxy with name "{name}" already exists.')
    display_name, icon = body.get("display_name", ""), body.get("icon", "")
    made = Proxy(str(uuid4()), name, display_name, icon, "", "unregistered", state.now())
    return json_response(register(state, made), 201)


async def get_proxy(request: web.Request) -> web.Response:
    state, _, found = find_proxy(request)
    return json_response(primary(request) if found.id == state.deployment_id else wire.proxy(found))


async def change_proxy(request: web.Request) -> web.Response:
    state, user, found = find_proxy(request)
    body = await read(request)
    if missing := [name for name in REQUIRED if not body.get(name)]:
        raise missing_fields(*missing)
    if found.id == state.deployment_id:
        raise ErrorResponse(501, "The primary proxy of the simulator does not change.")
    if not user.is_owner:
        raise ErrorResponse(404, HIDDEN)
    holder = state.proxies.get(body["name"].lower())
    if holder is not None and holder.id != found.id and not found.deleted:
        raise ErrorResponse(500, "An internal server error occurred.", NAME_INDEX)
    changed = replace(found, name=body["name"], display_name=body["display_name"], icon=body["icon"])
    if not found.deleted:
        del state.proxies[found.name.lower()]
    if body.get("regenerate_token"):
        return json_response(register(state, changed))
    store(state, changed)
    return json_response({"proxy": wire.proxy(changed), "proxy_token": ""})


async def delete_proxy(request: web.Request) -> web.Response:
    state, user, found = find_proxy(request)
    if found.id == state.deployment_id:
        raise ErrorResponse(400, "Cannot delete primary proxy")
    if not user.is_owner:
        raise ErrorResponse(404, HIDDEN)
    if not found.deleted:
        state.delete_proxy(found.name.lower())
    return json_response({"message": "Proxy has been deleted!"})


async def refuse_proxy_itself(request: web.Request) -> web.Response:
    require_feature(request.app[STATE], "workspace_proxy", "Workspace Proxy")
    raise ErrorResponse(501, "The simulator does not support connections of workspace proxies.")


def register(state: State, proxy: Proxy) -> dict[str, Any]:
    """Issue a new token for a proxy, which is then not connected."""
    proxy = replace(proxy, token=f"{proxy.id}:{(uuid4().hex * 2)[:64]}")
    store(state, proxy)
    return {"proxy": wire.proxy(proxy), "proxy_token": proxy.token}


def store(state: State, proxy: Proxy) -> None:
    if proxy.deleted:
        state.deleted_proxies[proxy.id] = proxy
    else:
        state.proxies[proxy.name.lower()] = proxy


def enter_proxies(request: web.Request) -> tuple[State, User]:
    """Check the license before the token, as coderd does for workspace proxies."""
    state = request.app[STATE]
    require_feature(state, "workspace_proxy", "Workspace Proxy")
    return state, authenticate(state, request)


def find_proxy(request: web.Request) -> tuple[State, User, Proxy]:
    """Return the proxy with this ID, even if deleted, or with this name."""
    state, user = enter_proxies(request)
    wanted = request.match_info["name"]
    itself = Proxy(state.deployment_id, "primary", "Default", "/emojis/1f3e1.png", "", "ok", state.now())
    known = [itself, *(state.proxies.values() if user.sees_proxies else ())]
    for proxy in [*known, *(state.deleted_proxies.values() if user.sees_proxies else ())]:
        if wanted == proxy.id or (wanted == proxy.name and not proxy.deleted):
            return state, user, proxy
    raise ErrorResponse(404, HIDDEN)


def primary(request: web.Request) -> dict[str, Any]:
    return wire.primary_proxy(request.app[STATE], f"http://{request.host}")
