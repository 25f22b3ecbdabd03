"""What each route of the stand-in does."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.answers import (
    DATABASE_DOWN,
    HIDDEN,
    Refused,
    answer,
    authenticate,
    invalid_field,
    presented_key,
    require_feature,
    require_owner,
)
from coder_k8s.dev.coderd_server.licensing import claims_of, is_genuine
from coder_k8s.dev.coderd_server.queries import is_uuid, query_ids, query_limit, query_states, query_tags
from coder_k8s.dev.coderd_server.state import RESERVED, Proxy, State, User

STATE = web.AppKey("state", State)
DAEMON_STATES = ("offline", "idle", "busy")
JOB_STATES = ("pending", "running", "succeeded", "canceling", "canceled", "failed", "unknown")


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


async def list_organizations(request: web.Request) -> web.Response:
    state = request.app[STATE]
    authenticate(state, request)
    return answer([wire.organization(state)])


async def get_organization(request: web.Request) -> web.Response:
    enter_organization(request)
    return answer(wire.organization(request.app[STATE]))


async def refuse_organization(request: web.Request) -> web.Response:
    authenticate(request.app[STATE], request)
    require_feature(request.app[STATE], "multiple_organizations", "Multiple Organizations")
    raise Refused(501, "The stand-in has one organization.")


async def unknown_in_organization(request: web.Request) -> web.Response:
    enter_organization(request)
    raise Refused(404, "Route not found.")


async def list_keys(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    return answer([wire.key(each) for each in state.keys.values() if each.organization == organization])


async def create_key(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    body = await read(request)
    name = body.get("name", "")
    if not name:
        raise invalid_field("Name is required", "name", "Name is required")
    if len(name.encode()) > 64:
        raise invalid_field("Name must be at most 64 characters", "name", "Name must be at most 64 characters")
    if name.lower() in RESERVED:
        text = f"Name cannot be reserved name '{name}'"
        raise invalid_field(text, "name", text)
    if state.place(name, organization) in state.keys:
        raise Refused(409, f"Provisioner key with name '{name}' already exists in organization")
    return answer({"key": state.add_key(name, body.get("tags"), organization)}, 201)


async def delete_key(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    name = request.match_info["name"].lower()
    if name in RESERVED:
        raise Refused(400, f"Cannot delete reserved '{name}' provisioner key")
    if state.place(name, organization) not in state.keys:
        raise Refused(404, HIDDEN)
    state.delete_key(name, organization)
    return web.Response(status=204)


async def key_daemons(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    recent = [each for each in state.daemons.values() if each.status != "offline"]
    keys = [each for each in state.keys.values() if each.organization == organization]
    unsaid = {"status": None, "key_name": None, "current_job": None, "previous_job": None}
    return answer(
        [
            {
                "key": wire.key(key),
                "daemons": [{**wire.daemon(state, each), **unsaid} for each in recent if each.key == key.id],
            }
            for key in (*state.reserved_keys(), *keys)
        ]
    )


async def look_up_key(request: web.Request) -> web.Response:
    state = request.app[STATE]
    secret = presented_key(request)
    if not secret:
        raise Refused(401, "provisioner daemon key required")
    if len(secret) != 43:
        raise Refused(400, "provisioner daemon key invalid", "must be 43 characters")
    if state.switches.database_down:
        raise Refused(500, "get provisioner daemon key", DATABASE_DOWN)
    for key in state.keys.values():
        if key.secret == secret:
            return answer(wire.key(key))
    raise Refused(401, "provisioner daemon key invalid")


async def list_daemons(request: web.Request) -> web.Response:
    state, user, organization = enter_organization(request)
    if not user.is_owner:
        raise Refused(404, HIDDEN)
    wanted = query_states(request, DAEMON_STATES, "provisioner daemons", "provisioner_daemon_status")
    tags, ids = query_tags(request), query_ids(request)
    shown = [
        each
        for each in state.daemons.values()
        if state.organization_of(each) == organization
        and (each.status in wanted if wanted else each.status != "offline" or request.query.get("offline") == "true")
        and tags.items() <= each.tags.items()
        and (not ids or each.id in ids)
    ]
    return answer([wire.daemon(state, each) for each in shown[: query_limit(request)]])


async def list_jobs(request: web.Request) -> web.Response:
    state, user, _ = enter_organization(request)
    if not user.is_owner:
        raise Refused(404, HIDDEN)
    if "initiator" in request.query and not is_uuid(request.query["initiator"]):
        detail = 'Query param "initiator" must be a valid uuid'
        raise invalid_field("Invalid query parameters.", "initiator", detail)
    wanted = query_states(request, JOB_STATES, "provisioner jobs", "provisioner_job_status")
    tags = query_tags(request)
    shown = [
        job for job in state.jobs if (not wanted or job["status"] in wanted) and tags.items() <= job["tags"].items()
    ]
    return answer(shown[: query_limit(request)])


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


def enter_organization(request: web.Request) -> tuple[State, User, str]:
    """The way to everything below an organization: a good token, then an organization that exists."""
    state = request.app[STATE]
    user = authenticate(state, request)
    organization = state.find_organization(request.match_info["organization"])
    if organization is None:
        raise Refused(404, HIDDEN)
    return state, user, organization


def enter_keys(request: web.Request) -> tuple[State, str]:
    state, user, organization = enter_organization(request)
    require_feature(state, "external_provisioner_daemons", "External Provisioner Daemons")
    if not user.is_owner:
        raise Refused(404, HIDDEN)
    return state, organization


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
