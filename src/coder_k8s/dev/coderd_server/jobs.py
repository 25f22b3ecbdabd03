"""The list of provisioner jobs."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.organizations import enter_organization
from coder_k8s.dev.coderd_server.queries import Query, check_enum, path_id
from coder_k8s.dev.coderd_server.queue import Job
from coder_k8s.dev.coderd_server.responses import HIDDEN, ErrorResponse, json_response
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.tags import covers

STATES = ("pending", "running", "succeeded", "canceling", "canceled", "failed", "unknown")


async def list_jobs(request: web.Request) -> web.Response:
    state, organization = enter_jobs(request)
    query = Query(request.query)
    limit, wanted, ids = query.limit(), query.words("status"), query.ids("ids")
    tags, initiator = query.tags(), query.id("initiator")
    query.check()
    check_enum(wanted, STATES, "provisioner jobs", "provisioner_job_status")
    shown = [
        job
        for job in state.queue.jobs
        if job.organization == organization
        and (not wanted or job.status in wanted)
        and (not ids or job.id in ids)
        and (not initiator or job.initiator == initiator)
        and covers(job.tags, tags)
    ]
    return json_response(encode(state, shown[:limit]))


async def get_job(request: web.Request) -> web.Response:
    state, organization = enter_jobs(request)
    wanted = path_id(request, "job")
    for job in state.queue.jobs:
        if job.id == wanted and job.organization == organization:
            return json_response(encode(state, [job])[0])
    raise ErrorResponse(404, HIDDEN)


def enter_jobs(request: web.Request) -> tuple[State, str]:
    state, user, organization = enter_organization(request)
    if not user.is_owner:
        raise ErrorResponse(404, HIDDEN)
    return state, organization


def encode(state: State, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return jobs with the names of their daemons and, while they wait, the daemons that could take them."""
    waiting = [job.id for job in state.queue.pending()]
    return [{**wire.job(job, waiting), **daemons(state, job)} for job in jobs]


def daemons(state: State, job: Job) -> dict[str, Any]:
    """Return the daemon of a job, or those that could take it, even if they are offline; and its template."""
    template = {"metadata": state.templates.metadata(job)}
    if job.started_at is not None:
        worker = state.daemons.get(job.worker)
        return template if worker is None else {**template, "worker_name": worker.name}
    workers = [
        each.id
        for each in sorted(state.daemons.values(), key=lambda each: each.created_at)
        if state.organization_of(each) == job.organization and covers(each.tags, job.tags) and each.provisioners
    ]
    return {**template, "available_workers": workers} if workers else template
