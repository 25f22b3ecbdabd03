"""The routes that create, change and delete organizations, which need a license."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.handlers import STATE, read
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.queries import is_name
from coder_k8s.dev.coderd_server.records import Organization
from coder_k8s.dev.coderd_server.responses import (
    HIDDEN,
    ErrorResponse,
    authenticate,
    forbidden_write,
    invalid_field,
    json_response,
    require_feature,
)
from coder_k8s.dev.coderd_server.state import State

DEFAULT_ROLES = ["organization-workspace-access"]
ROLES = (
    "organization-admin",
    "organization-auditor",
    "organization-template-admin",
    "organization-user-admin",
    "organization-workspace-access",
    "organization-workspace-creation-ban",
)


async def create(request: web.Request) -> web.Response:
    state = request.app[STATE]
    user = authenticate(state, request)
    require_feature(state, "multiple_organizations", "Multiple Organizations")
    body = await read(request)
    name = checked_name(body, required=True)
    if name.lower() in state.organizations:
        raise ErrorResponse(409, "Organization already exists with that name.")
    if not user.is_owner:
        raise forbidden_write()
    display_name, description, icon = (body.get(field) or "" for field in ("display_name", "description", "icon"))
    made = Organization(str(uuid4()), name, display_name or name, state.now(), description, icon)
    state.put_organization(made)
    return json_response(wire.organization(state, made), 201)


async def change(request: web.Request) -> web.Response:
    state, organization = enter(request)
    body = await read(request)
    name = checked_name(body, required=False) or organization.name
    roles = body.get("default_org_member_roles")
    if roles is not None:
        check_roles(state, roles)
    if state.organizations.get(name.lower(), organization.id) != organization.id:
        detail = "This value is already in use and should be unique."
        validations = [{"field": "name", "detail": detail}]
        raise ErrorResponse(409, f'Organization already exists with the name "{name}".', validations=validations)
    given = {field: body[field] for field in ("description", "icon") if body.get(field) is not None}
    given |= {"display_name": body["display_name"]} if body.get("display_name") else {}
    given |= {"member_roles": tuple(roles)} if roles is not None else {}
    changed = replace(organization, name=name, **given)
    state.put_organization(changed)
    return json_response(wire.organization(state, changed))


async def delete(request: web.Request) -> web.Response:
    state, organization = enter(request)
    if organization.id == state.organization_id:
        raise ErrorResponse(400, "Default organization cannot be deleted.")
    counts = {
        "template": sum(each.organization == organization.id for each in state.templates.templates.values()),
        "provisioner key": sum(each.organization == organization.id for each in state.keys.values()),
    }
    parts = [f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
    if parts:
        detail = f"This organization has {', '.join(parts)} that must be deleted first."
        raise ErrorResponse(500, "Error deleting organization.", detail)
    state.remove_organization(organization.id)
    return json_response({"message": "Organization has been deleted."})


def enter(request: web.Request) -> tuple[State, Organization]:
    """Return the organization that an owner wants to change."""
    authenticate(request.app[STATE], request)
    require_feature(request.app[STATE], "multiple_organizations", "Multiple Organizations")
    state, user, organization = enter_organization(request)
    if not user.is_owner:
        raise ErrorResponse(404, HIDDEN)
    return state, state.organization(organization)


def checked_name(body: dict[str, Any], *, required: bool) -> str:
    name = str(body.get("name") or "")
    if not is_name(name) and (name or required):
        detail = f'Validation failed for tag "organization_name" with value: "{name}"'
        raise invalid_field("Validation failed.", "name", detail)
    if name == "default":
        raise ErrorResponse(400, 'Organization name "default" is reserved.')
    return name


def check_roles(state: State, roles: list[str]) -> None:
    """Reject roles of new members, other than the default one unless an experiment allows it."""
    if roles != DEFAULT_ROLES and not state.switches.implicit_member:
        text = (
            "Setting default_org_member_roles to anything other than [organization-workspace-access] requires the "
            '"minimum-implicit-member" experiment.'
        )
        raise ErrorResponse(403, "Changing default organization roles is not enabled on this deployment.", text)
    for role in roles:
        if role not in ROLES:
            field, reason = "default_org_member_roles", f'"{role}" is not a built-in role'
            more = f"{reason}; {field} currently accepts built-in role names only."
            raise invalid_field(f"Invalid {field} entry.", field, f"{reason}.", more)
