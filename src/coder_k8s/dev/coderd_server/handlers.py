"""What each route of the stand-in does."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.answers import (
    HIDDEN,
    Refused,
    answer,
    authenticate,
    invalid_field,
    require_feature,
    require_owner,
)
from coder_k8s.dev.coderd_server.licensing import claims_of, is_genuine
from coder_k8s.dev.coderd_server.state import Proxy, State

STATE = web.AppKey("state", State)


async def healthz(request: web.Request) -> web.Response:
    return web.Response(text="OK", content_type="text/plain", charset="utf-8")


async def build_info(request: web.Request) -> web.Response:
    return answer(wire.build_info(request.app[STATE], f"http://{request.host}"))


async def me(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    if not user.sees_itself:
        raise Refused(404, HIDDEN)
    return answer(wire.user(state, user))


async def entitlements(request: web.Request) -> web.Response:
    return answer(wire.entitlements(request.app[STATE]))


async def list_licenses(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    listed = [wire.license(each) for each in state.licenses if user.is_owner]
    return answer(None if state.is_old and not listed else listed)


async def add_license(request: web.Request) -> web.Response:
    state = request.app[STATE]
    require_owner(authenticate(state, request))
    jwt = (await read(request)).get("license", "")
    if not jwt:
        raise invalid_field("Validation failed.", "license", 'Validation failed for tag "required" with value: ""')
    if not is_genuine(jwt, state.now()):
        raise Refused(400, "Invalid license", "license has multiple issues; contact support")
    locked_to = claims_of(jwt).get("deployment_ids", [])
    if locked_to and state.deployment_id not in locked_to:
        raise Refused(400, "License cannot be used on this deployment!", "The provided license is locked.")
    if any(each.jwt == jwt for each in state.licenses):
        detail = 'pq: duplicate key value violates unique constraint "licenses_jwt_key"'
        raise Refused(500, "Unable to add license to database", detail)
    return answer(wire.license(state.add_license(jwt)), 201)


async def delete_license(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    if not request.match_info["id"].isdecimal():
        raise Refused(404, "License ID must be an integer")
    require_owner(user)
    kept = [each for each in state.licenses if each.id != int(request.match_info["id"])]
    if len(kept) == len(state.licenses):
        raise Refused(404, "Unknown license ID")
    state.licenses = kept
    return web.Response()


async def refresh_entitlements(request: web.Request) -> web.Response:
    state = request.app[STATE]
    require_owner(authenticate(state, request))
    wait = int((state.refreshed_at + timedelta(minutes=1) - state.now()).total_seconds())
    if wait > 0:
        message = f"Entitlements already recently refreshed, please wait {wait} seconds to force a new refresh"
        raise Refused(400, message, headers={"Retry-After": str(wait)})
    state.refreshed_at = state.now()
    return answer({"message": "Entitlements updated"})


async def list_proxies(request: web.Request) -> web.Response:
    state = enter_proxies(request)
    now = state.now()
    primary = Proxy(state.deployment_id, "primary", "Default", "/emojis/1f3e1.png", "", "ok", now)
    return answer({"regions": [wire.proxy(each) for each in (primary, *state.proxies.values())]})


async def create_proxy(request: web.Request) -> web.Response:
    state = enter_proxies(request)
    body = await read(request)
    name = body.get("name", "")
    if name.lower() == "primary":
        raise invalid_field('The name "primary" is reserved for the primary region.', "name", "Reserved name")
    if name.lower() in state.proxies:
        raise Refused(409, f'Workspace proxy with name "{name}" already exists.')
    made = Proxy(str(uuid4()), name, body["display_name"], body["icon"], "", "unregistered", state.now())
    return answer(register(state, made), 201)


async def get_proxy(request: web.Request) -> web.Response:
    return answer(wire.proxy(find_proxy(request)))


async def change_proxy(request: web.Request) -> web.Response:
    state, proxy = request.app[STATE], find_proxy(request)
    body = await read(request)
    for name in ("id", "name", "display_name", "icon"):
        if not body.get(name):
            detail = 'Validation failed for tag "required" with value: ""'
            raise invalid_field("Validation failed.", name, detail)
    del state.proxies[proxy.name.lower()]
    changed = replace(proxy, name=body["name"], display_name=body["display_name"], icon=body["icon"])
    if body.get("regenerate_token"):
        return answer(register(state, changed))
    state.proxies[changed.name.lower()] = changed
    return answer({"proxy": wire.proxy(changed), "proxy_token": ""})


async def delete_proxy(request: web.Request) -> web.Response:
    del request.app[STATE].proxies[find_proxy(request).name.lower()]
    return answer({"message": "Proxy has been deleted!"})


async def refuse_proxy_itself(request: web.Request) -> web.Response:
    enter_proxies(request)
    raise Refused(501, "No workspace proxy runs against the stand-in.")


def register(state: State, proxy: Proxy) -> dict[str, Any]:
    proxy = replace(proxy, token=f"{proxy.id}:{(uuid4().hex * 2)[:64]}")
    state.proxies[proxy.name.lower()] = proxy
    return {"proxy": wire.proxy(proxy), "proxy_token": proxy.token}


def enter_proxies(request: web.Request) -> State:
    """Workspace proxies are refused for want of a licence before anyone looks at the token."""
    state = request.app[STATE]
    require_feature(state, "workspace_proxy", "Workspace Proxy")
    require_owner(authenticate(state, request))
    return state


def find_proxy(request: web.Request) -> Proxy:
    state = enter_proxies(request)
    wanted = request.match_info["name"]
    for proxy in state.proxies.values():
        if wanted == proxy.id or wanted.lower() == proxy.name.lower():
            return proxy
    raise Refused(404, HIDDEN)


async def read(request: web.Request) -> dict[str, Any]:
    try:
        body: dict[str, Any] = await request.json()
    except ValueError:
        raise Refused(400, "Request body must be valid JSON.") from None
    return body
