"""The handlers of an organization's routes: provisioner keys."""

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.handlers import STATE, read
from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.responses import (
    DATABASE_DOWN,
    HIDDEN,
    ErrorResponse,
    authenticate,
    forbidden_write,
    invalid_field,
    json_response,
    presented_key,
    require_feature,
)
from coder_k8s.dev.coderd_server.state import RESERVED, State


async def list_organizations(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    shown = state.organizations.values() if user.in_organization or user.is_owner else []
    return json_response([wire.organization(state, state.organization(each)) for each in shown])


async def get_organization(request: web.Request) -> web.Response:
    state, _, organization = enter_organization(request)
    return json_response(wire.organization(state, state.organization(organization)))


async def unknown_in_organization(request: web.Request) -> web.Response:
    enter_organization(request)
    others = [each for each in request.app.router.resources() if each is not request.match_info.route.resource]
    if any([(await each.resolve(request))[1] for each in others]):
        return web.Response(status=405)
    raise ErrorResponse(404, "Route not found.")


async def list_keys(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    return json_response([wire.key(each) for each in state.keys.values() if each.organization == organization])


async def create_key(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    if not authenticate(state, request).is_owner:
        raise forbidden_write()
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
        raise ErrorResponse(409, f"Provisioner key with name '{name}' already exists in organization")
    return json_response({"key": state.add_key(name, body.get("tags"), organization)}, 201)


async def delete_key(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    name = request.match_info["name"].lower()
    if name in RESERVED:
        raise ErrorResponse(400, f"Cannot delete reserved '{name}' provisioner key")
    if state.place(name, organization) not in state.keys or not authenticate(state, request).is_owner:
        raise ErrorResponse(404, HIDDEN)
    state.delete_key(name, organization)
    return web.Response(status=204)


async def key_daemons(request: web.Request) -> web.Response:
    state, organization = enter_keys(request)
    recent = [each for each in state.daemons.values() if not each.is_stale(state.now())]
    keys = [each for each in state.keys.values() if each.organization == organization]
    unsaid = {"status": None, "key_name": None, "current_job": None, "previous_job": None}
    return json_response(
        [
            {
                "key": wire.key(key),
                "daemons": [{**wire.daemon(state, each), **unsaid} for each in recent if each.key == key.id],
            }
            for key in state.with_reserved(organization, keys)
        ]
    )


async def look_up_key(request: web.Request) -> web.Response:
    state = request.app[STATE]
    secret = presented_key(request)
    if not secret:
        raise ErrorResponse(401, "provisioner daemon key required")
    if len(secret) != 43:
        raise ErrorResponse(400, "provisioner daemon key invalid", "must be 43 characters")
    if state.switches.database_down:
        raise ErrorResponse(500, "get provisioner daemon key", DATABASE_DOWN)
    for key in state.keys.values():
        if key.secret == secret:
            return json_response(wire.key(key))
    raise ErrorResponse(401, "provisioner daemon key invalid")


def enter_organization(request: web.Request) -> tuple[State, User, str]:
    """Authenticate the request, and return the organization if the user can see it."""
    state = request.app[STATE]
    user = authenticate(state, request)
    organization = state.find_organization(request.match_info["organization"])
    if organization is None or not (user.in_organization or user.is_owner):
        raise ErrorResponse(404, HIDDEN)
    return state, user, organization


def enter_keys(request: web.Request) -> tuple[State, str]:
    state, user, organization = enter_organization(request)
    require_feature(state, "external_provisioner_daemons", "External Provisioner Daemons")
    if not user.reads_keys:
        raise ErrorResponse(404, HIDDEN)
    return state, organization
