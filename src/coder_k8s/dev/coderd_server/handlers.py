"""The handlers of the simulator's routes."""

import json
from datetime import timedelta
from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server import sql_tokens, wire
from coder_k8s.dev.coderd_server.licensing import claims_of, defect
from coder_k8s.dev.coderd_server.responses import (
    HIDDEN,
    ErrorResponse,
    authenticate,
    go_error,
    invalid_field,
    json_response,
    require_owner,
)
from coder_k8s.dev.coderd_server.state import State

STATE = web.AppKey("state", State)


async def healthz(request: web.Request) -> web.Response:
    return web.Response(text="OK", content_type="text/plain", charset="utf-8")


async def build_info(request: web.Request) -> web.Response:
    return json_response(wire.build_info(request.app[STATE], f"http://{request.host}"))


async def me(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    if not user.sees_itself:
        raise ErrorResponse(404, HIDDEN)
    return json_response(wire.user(state, user))


async def get_user(request: web.Request) -> web.Response:
    """Return a user by name or ID; the simulator has those with a token."""
    state, wanted = request.app[STATE], request.match_info["user"]
    authenticate(state, request)
    for each in (token.user for token in state.tokens.values()):
        if wanted.lower() in (each.username.lower(), each.id):
            return json_response(wire.user(state, each))
    if state.is_old:
        raise ErrorResponse(400, '"user" must be an existing uuid or username.')
    raise ErrorResponse(404, HIDDEN)


async def get_workspace(request: web.Request) -> web.Response:
    """Respond as a coderd without workspaces."""
    state = request.app[STATE]
    user = authenticate(state, request)
    if state.is_old and request.match_info["user"] not in ("me", user.username, state.owner.username):
        raise ErrorResponse(400, '"user" must be an existing uuid or username.')
    raise ErrorResponse(404, HIDDEN)


async def delete_token(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    identifier = request.match_info["id"]
    if identifier not in state.tokens or state.tokens[identifier].user != user:
        raise ErrorResponse(404, HIDDEN)
    if state.database_url is not None and identifier in state.tokens_of_database:
        await sql_tokens.delete_token(state.database_url, identifier)
    del state.tokens[identifier]
    return web.Response(status=204)


async def entitlements(request: web.Request) -> web.Response:
    return json_response(wire.entitlements(request.app[STATE]))


async def list_licenses(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    listed = [wire.license(each) for each in state.licenses if user.is_owner]
    return json_response(None if state.is_old and not listed else listed)


async def add_license(request: web.Request) -> web.Response:
    state = request.app[STATE]
    require_owner(authenticate(state, request))
    jwt = (await read(request)).get("license", "")
    if not jwt:
        raise invalid_field("Validation failed.", "license", 'Validation failed for tag "required" with value: ""')
    if found := defect(jwt, state.now()):
        raise ErrorResponse(400, "Invalid license", found)
    locked_to = claims_of(jwt).get("deployment_ids", [])
    if locked_to and state.deployment_id not in locked_to:
        detail = (
            f"The provided license is locked to the following deployments: {json.dumps(locked_to)}. "
            f'Your deployment identifier is "{state.deployment_id}". Please contact sales.'
        )
        raise ErrorResponse(400, "License cannot be used on this deployment!", detail)
    if any(each.jwt == jwt for each in state.licenses):
        detail = 'pq: duplicate key value violates unique constraint "licenses_jwt_key"'
        raise ErrorResponse(500, "Unable to add license to database", detail)
    return json_response(wire.license(state.add_license(jwt)), 201)


async def delete_license(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    if not request.match_info["id"].isdecimal():
        raise ErrorResponse(404, "License ID must be an integer")
    require_owner(user)
    kept = [each for each in state.licenses if each.id != int(request.match_info["id"])]
    if len(kept) == len(state.licenses):
        raise ErrorResponse(404, "Unknown license ID")
    state.licenses = kept
    return web.Response()


async def refresh_entitlements(request: web.Request) -> web.Response:
    state = request.app[STATE]
    require_owner(authenticate(state, request))
    wait = int((state.refreshed_at + timedelta(minutes=1) - state.now()).total_seconds())
    if wait > 0:
        message = f"Entitlements already recently refreshed, please wait {wait} seconds to force a new refresh"
        raise ErrorResponse(400, message, headers={"Retry-After": str(wait)})
    state.refreshed_at = state.now()
    return json_response({"message": "Entitlements updated"})


async def read(request: web.Request) -> dict[str, Any]:
    text = await request.text()
    try:
        body: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ErrorResponse(400, "Request body must be valid JSON.", go_error(error)) from None
    return body
