"""The routes that upload files and create, cancel and archive versions of templates."""

import hashlib
import io
import zipfile
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from aiohttp import web

from coder_k8s.dev.coderd_server import template_wire
from coder_k8s.dev.coderd_server.handlers import STATE, read
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.queries import path_id
from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.responses import HIDDEN, ErrorResponse, authenticate, json_response
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.template_changes import FORBIDDEN
from coder_k8s.dev.coderd_server.template_routes import can_write, find_version
from coder_k8s.dev.coderd_server.template_settings import NO_ID, check_new_version

TAR = "application/x-tar"
ZIP = ("application/zip", "application/x-zip-compressed")
UPLOADS = 12
"""The number of requests per minute and user."""


async def upload(request: web.Request) -> web.Response:
    """Store a file; the same content of the same user has one ID."""
    state = request.app[STATE]
    user = authenticate(state, request)
    check_uploads(state, request, user)
    kind = request.headers.get("Content-Type", "")
    if kind not in (TAR, *ZIP):
        raise ErrorResponse(400, f'Unsupported content type header "{kind}".')
    content = await request.read()
    if kind in ZIP and not zipfile.is_zipfile(io.BytesIO(content)):
        raise ErrorResponse(400, "Incomplete .zip archive file.", "zip: not a valid zip file")
    stored = (user.id, hashlib.sha256(content).hexdigest())
    for file, known in state.templates.files.items():
        if known == stored:
            return json_response({"hash": file})
    file = str(uuid4())
    state.templates.files[file] = stored
    if kind == TAR:
        state.templates.archives[file] = content
    return json_response({"hash": file}, 201)


async def get_file(request: web.Request) -> web.Response:
    state = request.app[STATE]
    check_uploads(state, request, authenticate(state, request))
    file = path_id(request, "file")
    if file not in state.templates.files:
        raise ErrorResponse(404, HIDDEN)
    if (content := state.templates.archives.get(file)) is None:
        raise ErrorResponse(501, "The simulator does not convert files.")
    return web.Response(body=content, content_type=TAR)


def check_uploads(state: State, request: web.Request, user: User) -> None:
    """Enforce the rate limit of files; for them, both versions let owners bypass it."""
    if user.is_owner and request.headers.get("X-Coder-Bypass-Ratelimit") == "true":
        return
    who, now = (request.path, user.id), state.now()
    recent = [moment for moment in state.templates.uploads.get(who, []) if now - moment < timedelta(minutes=1)]
    if len(recent) >= UPLOADS:
        message = f"You've been rate limited for sending more than {UPLOADS} requests in 1m0s."
        raise ErrorResponse(429, message, headers={"Retry-After": "60"})
    state.templates.uploads[who] = [*recent, now]


async def create(request: web.Request) -> web.Response:
    state, user, organization = enter_organization(request)
    body = await read(request)
    check_new_version(body)
    template = (body.get("template_id") or "").replace(NO_ID, "")
    known = state.templates.templates.get(template)
    if template and known is None:
        raise ErrorResponse(404, "Template does not exist.")
    if body.get("example_id"):
        raise ErrorResponse(501, "The simulator has no examples.")
    owner, _ = state.templates.files.get(body["file_id"], ("", ""))
    if not owner or (owner != user.id and not can_write(user)):
        raise ErrorResponse(404, "File not found.")
    if not can_write(user):
        detail = f"insert provisioner job: {FORBIDDEN}"
        raise ErrorResponse(500, "Internal error creating template version.", detail)
    name = body.get("name") or f"version_{uuid4().hex[:8]}"
    if template and any(each.name == name for each in state.templates.versions_of(template)):
        message = f'A template version with name "{name}" already exists for this template.'
        taken = [{"field": "name", "detail": "This value is already in use and should be unique."}]
        raise ErrorResponse(409, message, validations=taken)
    fields = {"template": template, "message": body.get("message") or "", "file": body["file_id"]}
    fields["provisioner"] = body["provisioner"]
    made = state.templates.add_version(name, body.get("tags"), organization=organization, author=user, **fields)
    return json_response(template_wire.version(state, made, new=True), 201)


async def cancel(request: web.Request) -> web.Response:
    state, user, version = find_version(request)
    job = state.queue.job(version.job)
    if job.completed_at is not None:
        raise ErrorResponse(400, "Job has already completed!")
    if job.canceled_at is not None:
        raise ErrorResponse(400, "Job has already been marked as canceled!")
    if not can_write(user):
        raise ErrorResponse(500, "Internal error updating provisioner job.", FORBIDDEN)
    state.queue.cancel_job(version.job)
    return json_response({"message": "Job has been marked as canceled..."})


async def logs(request: web.Request) -> web.Response:
    state, _, version = find_version(request)
    return json_response(list(state.queue.job(version.job).logs))


async def archive(request: web.Request) -> web.Response:
    """Archive or unarchive one version."""
    state, user, version = find_version(request)
    wanted = request.path.endswith("/archive")
    verb = "archived" if wanted else "unarchived"
    if version.archived is wanted:
        raise ErrorResponse(400, f"Template version already {verb}")
    if not version.template:
        raise ErrorResponse(400, "Cannot archive template versions not associate with a template.")
    if not can_write(user):
        raise ErrorResponse(404, "Template or template versions not found.")
    if wanted and version.id not in [each.id for each in state.templates.unused(version.template)]:
        detail = (
            "Unable to archive specified version, the version is likely in use by a workspace or currently set to "
            "the active version"
        )
        raise ErrorResponse(500, "Internal error fetching template version.", detail)
    state.templates.versions[version.id] = replace(version, archived=wanted, updated_at=state.now())
    return json_response(f'template version "{version.id}" {verb}')
