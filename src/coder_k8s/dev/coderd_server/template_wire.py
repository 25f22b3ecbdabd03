"""Encodes templates and their versions in coderd's JSON format."""

from typing import Any

from coder_k8s.dev.coderd_server import wire
from coder_k8s.dev.coderd_server.queue import NO_TEMPLATE, Job
from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.tags import NO_USER, covers
from coder_k8s.dev.coderd_server.templates import Template, Version

NOT_MEASURED = {kind: {"P50": None, "P95": None} for kind in ("delete", "start", "stop")}
NEW_FIELDS = ("deleted", "time_til_autostop_notify_ms", "disable_module_cache")
"""Fields that 2.30 does not have."""


def template(state: State, each: Template) -> dict[str, Any]:
    organization = state.organization(each.organization)
    body = {
        "id": each.id,
        "created_at": wire.time(each.created_at),
        "updated_at": wire.time(each.updated_at),
        "organization_id": each.organization,
        "organization_name": organization.name,
        "organization_display_name": organization.display_name,
        "organization_icon": organization.icon,
        "name": each.name,
        "provisioner": state.templates.versions[each.active].provisioner,
        "active_version_id": each.active,
        "active_user_count": 0,
        "build_time_stats": NOT_MEASURED,
        "created_by_id": each.author.id,
        "created_by_name": each.author.username,
        "deleted": each.deleted,
        "deprecated": bool(each.settings["deprecation_message"]),
        **each.settings,
    }
    if state.entitlement("access_control") == "not_entitled":
        body["require_active_version"] = False
    if state.entitlement("control_shared_ports") == "not_entitled":
        body["max_port_share_level"] = "public"
    return {name: value for name, value in body.items() if not state.is_old or name not in NEW_FIELDS}


def version(state: State, each: Version, *, new: bool = False) -> dict[str, Any]:
    """Return a version with its job and, while that waits, the number of daemons that could run it."""
    job = state.queue.job(each.job)
    updated = max(each.updated_at, job.completed_at) if job.status == "succeeded" and job.completed_at else None
    position, size = (0, 0) if new else queue_place(state, job)
    matched = {"matched_provisioners": matched_provisioners(state, job)} if new or job.status == "pending" else {}
    return {
        "id": each.id,
        "template_id": each.template or NO_USER,
        "organization_id": each.organization,
        "created_at": wire.time(each.created_at),
        "updated_at": wire.time(updated or each.updated_at),
        "name": each.name,
        "message": each.message,
        "job": {**wire.job(job), "metadata": NO_TEMPLATE, "queue_position": position, "queue_size": size},
        "readme": "",
        "created_by": author(each.author),
        "archived": each.archived,
        **matched,
        "has_external_agent": False,
    }


def queue_place(state: State, job: Job) -> tuple[int, int]:
    """Return the best position of a pending job among those that one connected daemon could run, and their number."""
    connected = [each.tags for each in state.daemons.values() if not each.is_stale(state.now())]
    queues = [[each.id for each in state.queue.pending() if covers(tags, each.tags)] for tags in connected]
    places = [(queue.index(job.id) + 1, len(queue)) for queue in queues if job.id in queue]
    return (min(place for place, _ in places), max(size for _, size in places)) if places else (0, 0)


def author(user: User) -> dict[str, Any]:
    return {"id": user.id, "username": user.username, **({"name": user.name} if user.name else {})}


def matched_provisioners(state: State, job: Job) -> dict[str, Any]:
    """Return how many daemons could run a job, and how many of them were seen within 90 seconds."""
    now = state.now()
    matching = [
        each
        for each in state.daemons.values()
        if state.organization_of(each) == job.organization and covers(each.tags, job.tags)
    ]
    seen = [each.seen_at(now) for each in matching]
    return {
        "count": len(matching),
        "available": sum(not each.is_stale(now) for each in matching),
        "most_recently_seen": wire.time(max(seen)) if seen else None,
    }
