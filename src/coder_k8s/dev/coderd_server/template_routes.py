"""The routes that read templates and their versions.

Members of an organization see the templates of its group of everyone; owners and template administrators see all.
"""

from aiohttp import web

from coder_k8s.dev.coderd_server import template_wire
from coder_k8s.dev.coderd_server.handlers import STATE
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.queries import Query, path_id
from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.responses import HIDDEN, ErrorResponse, authenticate, json_response
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.templates import Template, Version


async def list_all(request: web.Request) -> web.Response:
    state = request.app[STATE]
    return listed(request, state, authenticate(state, request))


async def list_in_organization(request: web.Request) -> web.Response:
    state, user, organization = enter_organization(request)
    return listed(request, state, user, organization)


async def get_template(request: web.Request) -> web.Response:
    state, _, template = find_template(request)
    return json_response(template_wire.template(state, template))


async def get_by_name(request: web.Request) -> web.Response:
    state, _, template = find_by_name(request)
    return json_response(template_wire.template(state, template))


async def get_version(request: web.Request) -> web.Response:
    state, _, version = find_version(request)
    return json_response(template_wire.version(state, version))


async def list_versions(request: web.Request) -> web.Response:
    """List the versions of a template without `matched_provisioners`, as coderd does."""
    state, _, template = find_template(request)
    query = Query(request.query)
    limit, offset = query.limit(0), query.offset()
    archived = query.boolean("include_archived")
    query.check(lenient=True)
    shown = [each for each in state.templates.versions_of(template.id) if archived or not each.archived]
    bodies = [template_wire.version(state, each) for each in shown[offset:][:limit]]
    return json_response([{k: v for k, v in body.items() if k != "matched_provisioners"} for body in bodies])


async def get_named_version(request: web.Request) -> web.Response:
    state, _, template = find_by_name(request) if "organization" in request.match_info else find_template(request)
    name = request.match_info["version"]
    for version in state.templates.versions_of(template.id):
        if version.name == name:
            return json_response(template_wire.version(state, version))
    raise ErrorResponse(404, f'No template version found by name "{name}".')


async def list_workspaces(request: web.Request) -> web.Response:
    """Count the workspaces of a template; the simulator does not have the workspaces themselves."""
    state = request.app[STATE]
    authenticate(state, request)
    terms = dict(term.split(":", 1) for term in request.query.get("q", "").lower().split() if ":" in term)
    if not terms.keys() <= {"template", "organization"}:
        raise ErrorResponse(501, "The simulator has no workspaces.")
    counts = [
        len(each.used)
        for each in state.templates.templates.values()
        if not each.deleted
        and terms.get("template", each.name.lower()) == each.name.lower()
        and terms.get("organization", each.organization) in (each.organization, "")
    ]
    return json_response({"workspaces": [], "count": sum(counts)})


def listed(request: web.Request, state: State, user: User, organization: str = "") -> web.Response:
    query = Query(dict(term.split(":", 1) for term in request.query.get("q", "").lower().split() if ":" in term))
    deprecated, exact_name = query.boolean("deprecated"), query.text("exact_name")
    query.check("Invalid template search query.")
    shown = [
        each
        for each in sorted(state.templates.templates.values(), key=lambda each: (each.name, each.id))
        if can_read(user, each)
        and not each.deleted
        and (not organization or each.organization == organization)
        and bool(each.settings["deprecation_message"]) is deprecated
        and exact_name in ("", each.name.lower())
    ]
    return json_response([template_wire.template(state, each) for each in shown])


def can_read(user: User, template: Template) -> bool:
    """Return whether a user sees a template, as an administrator or by a role."""
    has_role = template.organization in template.groups or user.id in template.users
    return can_write(user) or (user.in_organization and has_role)


def can_write(user: User) -> bool:
    return not {"owner", "template-admin"}.isdisjoint(user.roles)


def find_template(request: web.Request) -> tuple[State, User, Template]:
    state = request.app[STATE]
    user = authenticate(state, request)
    found = state.templates.templates.get(path_id(request, "template"))
    if found is None or found.deleted or not can_read(user, found):
        raise ErrorResponse(404, HIDDEN)
    return state, user, found


def find_by_name(request: web.Request) -> tuple[State, User, Template]:
    state, user, organization = enter_organization(request)
    found = state.templates.find(organization, request.match_info["template"])
    if found is None or not can_read(user, found):
        raise ErrorResponse(404, HIDDEN)
    return state, user, found


def find_version(request: web.Request) -> tuple[State, User, Version]:
    state = request.app[STATE]
    user = authenticate(state, request)
    found = state.templates.versions.get(path_id(request, "version"))
    template = state.templates.templates.get(found.template) if found else None
    if found is None or not (can_write(user) or (template is not None and can_read(user, template))):
        raise ErrorResponse(404, HIDDEN)
    return state, user, found
