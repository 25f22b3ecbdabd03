"""The routes that create, change and delete templates.

coderd checks who may change a template when it writes to its database, so that a refusal is often a 500.
"""

from dataclasses import replace
from typing import Any
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import template_wire
from coder_k8s.dev.coderd_server.handlers import STATE, read
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.responses import (
    NO_RIGHT,
    ErrorResponse,
    invalid_field,
    json_response,
    require_feature,
)
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.template_routes import can_write, find_template
from coder_k8s.dev.coderd_server.template_settings import (
    NO_ID,
    changed_settings,
    check_change,
    check_new_template,
    failed,
    invalid,
    new_settings,
    raise_validation,
)
from coder_k8s.dev.coderd_server.templates import Template, Version

FORBIDDEN = "unauthorized: rbac: forbidden"
ROLES = ("admin", "use", "")


async def create(request: web.Request) -> web.Response:
    state, user, organization = enter_organization(request)
    body = await read(request)
    check_new_template(body)
    if state.templates.find(organization, body["name"]) is not None:
        raise name_taken(body["name"])
    version = first_version(state, body["template_version_id"])
    if not can_write(user):
        raise ErrorResponse(500, "Internal error fetching template version.", FORBIDDEN)
    settings, now = new_settings(state, body), state.now()
    groups = {} if body.get("disable_everyone_group_access") else {organization: "use"}
    made = Template(
        str(uuid4()), organization, body["name"], version.id, user, now, now, settings=settings, groups=groups
    )
    state.templates.put(made)
    return json_response(template_wire.template(state, made), 201)


def first_version(state: State, wanted: str) -> Version:
    """Return the version for a new template, which must not belong to another one."""
    version = state.templates.versions.get(wanted)
    if version is None:
        message = f'Template version "{wanted}" does not exist.'
        raise ErrorResponse(404, message, validations=version_field("Template version does not exist"))
    if version.archived:
        detail = "Template version is archived"
        raise invalid_field(f"Template version {wanted} is archived.", "template_version_id", detail)
    if version.template:
        detail = "Template version is already part of a template"
        message = f"Template version {wanted} is already part of a template"
        raise invalid_field(message, "template_version_id", detail)
    return version


async def change(request: web.Request) -> web.Response:
    """Change a template; 2.30 returns 304 if nothing changes, later versions then change only the time."""
    state, user, template = find_template(request)
    body = await read(request)
    check_change(body)
    name = body.get("name") or template.name
    settings = changed_settings(state, template.settings, body)
    if state.is_old and body.get("name") == template.name and settings == template.settings:
        return web.Response(status=304)
    if not can_write(user):
        detail = f"execute transaction: update template metadata: {FORBIDDEN}"
        raise ErrorResponse(500, "An internal server error occurred.", detail)
    holder = state.templates.find(template.organization, name)
    if holder is not None and holder.id != template.id:
        raise name_taken(name)
    hidden = {template.organization} if body.get("disable_everyone_group_access") else set()
    groups = {group: role for group, role in template.groups.items() if group not in hidden}
    changed = replace(template, name=name, settings=settings, groups=groups, updated_at=state.now())
    state.templates.put(changed)
    return json_response(template_wire.template(state, changed))


async def delete(request: web.Request) -> web.Response:
    state, user, template = find_template(request)
    if template.used:
        raise ErrorResponse(400, "All workspaces must be deleted before a template can be removed.")
    if not can_write(user):
        raise ErrorResponse(403, "Forbidden.", NO_RIGHT)
    state.templates.put(replace(template, deleted=True, updated_at=state.now()))
    return json_response({"message": "Template has been deleted!"})


async def promote(request: web.Request) -> web.Response:
    state, user, template = find_template(request)
    body = await read(request)
    if (wanted := body.get("id") or NO_ID) == NO_ID:
        raise_validation([failed("id", "required", wanted)])
    version = state.templates.versions.get(wanted)
    if version is None:
        raise ErrorResponse(404, "Template version not found.")
    if version.template != template.id:
        raise ErrorResponse(400, "The provided template version doesn't belong to the specified template.")
    if (status := state.queue.job(version.job).status) != "succeeded":
        message = "Only versions that have been built successfully can be promoted."
        raise ErrorResponse(403, message, f"Attempted to promote a version with a {status} build")
    if version.archived:
        raise ErrorResponse(400, "The provided template version is archived.")
    if not can_write(user):
        detail = f"execute transaction: update active version: {FORBIDDEN}"
        raise ErrorResponse(500, "Internal error updating active template version.", detail)
    state.templates.put(replace(template, active=version.id, updated_at=state.now()))
    return json_response({"message": "Updated the active template version!"})


async def archive(request: web.Request) -> web.Response:
    state, user, template = find_template(request)
    every = bool((await read(request)).get("all"))
    if not can_write(user):
        raise ErrorResponse(404, "Template or template versions not found.")
    unused = state.templates.unused(template.id)
    archived = [each for each in unused if every or state.queue.job(each.job).status == "failed"]
    for each in archived:
        state.templates.versions[each.id] = replace(each, archived=True, updated_at=state.now())
    return json_response({"template_id": template.id, "archived_ids": [each.id for each in archived] or None})


async def get_acl(request: web.Request) -> web.Response:
    state, template = enter_acl(request)
    groups = [{**group(state, template.organization, each), "role": role} for each, role in template.groups.items()]
    users = [{"id": user, "username": username(state, user), "role": role} for user, role in template.users.items()]
    return json_response({"users": users, "group": groups})


async def list_groups(request: web.Request) -> web.Response:
    """List the groups of an organization, each with the fields that coderd's source has."""
    require_feature(request.app[STATE], "template_rbac", "Template RBAC")
    state, _, organization = enter_organization(request)
    return json_response([group(state, organization, each) for each in (organization, *state.templates.groups)])


def username(state: State, user: str) -> str:
    """Return the name of a user by ID."""
    return next((each.user.username for each in state.tokens.values() if each.user.id == user), user)


def group(state: State, organization_id: str, identifier: str) -> dict[str, Any]:
    organization = state.organization(organization_id)
    return {
        "id": identifier,
        "name": state.templates.groups.get(identifier, "Everyone"),
        "display_name": "",
        "organization_id": organization_id,
        "organization_name": organization.name,
        "organization_display_name": organization.display_name,
        "members": [],
        "total_member_count": 0,
        "avatar_url": "",
        "quota_allowance": 0,
        "source": "user",
    }


async def change_acl(request: web.Request) -> web.Response:
    """Add, change and remove roles; an empty role removes one."""
    state, template = enter_acl(request)
    body = await read(request)
    given = {name: body.get(f"{name}_perms") or {} for name in ("group", "user")}
    wrong = [
        (f"{name}_perms", f'role "{role}" is not a valid template role')
        for name, roles in given.items()
        for role in roles.values()
        if role not in ROLES
    ]
    if wrong:
        raise invalid("Invalid request to update template ACL", wrong)
    groups, users = with_roles(template.groups, given["group"]), with_roles(template.users, given["user"])
    state.templates.put(replace(template, groups=groups, users=users))
    return json_response({"message": "Successfully updated template ACL list."})


def with_roles(current: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    return {name: role for name, role in {**current, **given}.items() if role}


def enter_acl(request: web.Request) -> tuple[State, Template]:
    """Check the license before the token, as coderd does for roles."""
    require_feature(request.app[STATE], "template_rbac", "Template RBAC")
    state, user, template = find_template(request)
    if not can_write(user):
        raise ErrorResponse(500, "An internal server error occurred.", FORBIDDEN)
    return state, template


def name_taken(name: str) -> ErrorResponse:
    taken = [{"field": "name", "detail": "This value is already in use and should be unique."}]
    return ErrorResponse(409, f'Template with name "{name}" already exists.', validations=taken)


def version_field(detail: str) -> list[dict[str, str]]:
    return [{"field": "template_version_id", "detail": detail}]
