"""Encodes objects of the simulator in coderd's JSON format."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from coder_k8s.dev.coderd_server.licensing import LIMITS, SWITCHED_ON, claims_of, expiry_warning, is_genuine
from coder_k8s.dev.coderd_server.queue import Job
from coder_k8s.dev.coderd_server.records import Daemon, Organization, Proxy, StoredKey, StoredLicense, User
from coder_k8s.dev.coderd_server.state import RESERVED, State


def time(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def build_info(state: State, url: str) -> dict[str, Any]:
    info = {
        "external_url": "https://github.com/coder/coder",
        "version": state.build_version,
        "dashboard_url": url,
        "telemetry": False,
        "workspace_proxy": False,
        "agent_api_version": "1.0",
        "provisioner_api_version": api_version(state),
        "upgrade_message": "",
        "deployment_id": state.deployment_id,
    }
    return info if state.is_old else {**info, "webpush_public_key": "stand-in"}


def api_version(state: State) -> str:
    return "1.14" if state.is_old else "1.18"


def user(state: State, who: User) -> dict[str, Any]:
    body = {
        "id": who.id,
        "username": who.username,
        **({"name": who.name} if who.name else {}),
        "email": who.email or f"{who.username}@example.com",
        "created_at": time(state.started_at),
        "updated_at": time(state.started_at),
        "last_seen_at": time(state.started_at),
        "status": who.status,
        "login_type": who.login_type,
        "organization_ids": [state.organization_id] if who.in_organization else [],
        "roles": [{"name": role, "display_name": role.replace("-", " ").title()} for role in who.roles],
    }
    return body if state.is_old else {**body, "has_ai_seat": False}


def organization(state: State, each: Organization) -> dict[str, Any]:
    body = {
        "id": each.id,
        "name": each.name,
        "display_name": each.display_name,
        "icon": each.icon,
        "description": each.description,
        "created_at": time(each.created_at),
        "updated_at": time(each.created_at),
        "is_default": each.id == state.organization_id,
    }
    return body if state.is_old else {**body, "default_org_member_roles": list(each.member_roles)}


def entitlements(state: State) -> dict[str, Any]:
    genuine = [each for each in state.licenses if is_genuine(each.jwt, state.now())]
    claims = [claims_of(each.jwt) for each in genuine]
    return {
        "features": {name: feature(state, name, claims) for name in state.feature_names()},
        "warnings": warnings(state, claims),
        "errors": [
            *(
                f"Invalid license ({each.uuid}) parsing claims: ed25519: verification error"
                for each in state.licenses
                if each not in genuine
            ),
            *replica_errors(state, claims),
        ],
        "has_license": bool(genuine),
        "trial": any(each["trial"] for each in claims),
        "require_telemetry": False,
        "refreshed_at": time(state.refreshed_at),
    }


def replica_errors(state: State, claims: list[dict[str, Any]]) -> list[str]:
    """Return coderd's error for several replicas without the license for them."""
    if state.replicas == 1 or state.entitlement("high_availability") != "not_entitled":
        return []
    unlicensed = "high availability is an Enterprise feature"
    reason = "your license is not entitled to high availability" if claims else unlicensed
    return [f"You have multiple replicas but {reason}. You will be unable to connect to workspaces."]


def feature(state: State, name: str, claims: list[dict[str, Any]]) -> dict[str, Any]:
    """Return entitlement, limit and usage of a feature."""
    granted = state.entitlement(name)
    body: dict[str, Any] = {
        "entitlement": granted,
        "enabled": granted != "not_entitled" and name not in state.not_configured,
    }
    limit = max(((each.get("features") or {}).get(name, 0) for each in claims), default=0)
    if name in LIMITS and limit:
        body |= {"limit": limit, "actual": 0}
    if name == "managed_agent_limit" and limit:
        issued, ends = (whole(claims[-1][claim]) for claim in ("iat", "exp"))
        body["usage_period"] = {"issued_at": issued, "start": issued, "end": ends}
    return body if name != "user_limit" else {**body, "actual": state.users}


def warnings(state: State, claims: list[dict[str, Any]]) -> list[str]:
    """Return coderd's warnings: licenses that expire soon, and enabled features without a license."""
    if not claims:
        return []
    soon = [warning for each in claims if (warning := expiry_warning(each, state.now()))]
    uncovered = [title for name, title in SWITCHED_ON.items() if state.entitlement(name) == "not_entitled"]
    return [*soon, *(f"{title} is enabled but your license is not entitled to this feature." for title in uncovered)]


def whole(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def license(stored: StoredLicense) -> dict[str, Any]:
    return {
        "id": stored.id,
        "uuid": stored.uuid,
        "uploaded_at": time(stored.uploaded_at),
        "claims": claims_of(stored.jwt),
    }


def key(stored: StoredKey) -> dict[str, Any]:
    return {
        "id": stored.id,
        "created_at": time(stored.created_at),
        "organization": stored.organization,
        "name": stored.name,
        "tags": stored.tags,
    }


def daemon(state: State, each: Daemon) -> dict[str, Any]:
    """Return a daemon with its status, unless it is offline."""
    names = {stored.id: stored.name for stored in state.keys.values()} | {key: name for name, key in RESERVED.items()}
    current, previous = state.queue.current(each.id), state.queue.previous(each.id)
    return {
        "id": each.id,
        "organization_id": state.organization_of(each),
        "key_id": each.key,
        "created_at": time(each.created_at),
        "last_seen_at": time(each.seen_at(state.now())),
        "name": each.name,
        "version": each.version,
        "api_version": api_version(state) if each.api_version is None else each.api_version,
        "provisioners": each.provisioners,
        "tags": each.tags,
        "key_name": names[each.key],
        "status": "busy" if each.status == "busy" or current else "idle",
        "current_job": daemon_job(state, current) if current else each.current_job,
        "previous_job": daemon_job(state, previous) if previous else each.previous_job,
    }


def daemon_job(state: State, job: Job) -> dict[str, Any]:
    metadata = state.templates.metadata(job)
    template = {name: metadata[name] for name in ("template_name", "template_icon", "template_display_name")}
    return {"id": job.id, "status": job.status, **template}


def job(each: Job, waiting: Sequence[str] = ()) -> dict[str, Any]:
    """Return a job without its daemons; `waiting` are the pending jobs, the next one first."""
    moments = {name: getattr(each, name) for name in ("started_at", "completed_at", "canceled_at")}
    optional = {
        **{name: time(moment) for name, moment in moments.items() if moment is not None},
        "error": each.error,
        "error_code": each.error_code,
        "worker_id": each.worker,
    }
    return {
        "id": each.id,
        "created_at": time(each.created_at),
        **{name: value for name, value in optional.items() if value},
        "status": each.status,
        "file_id": each.file,
        "tags": each.tags,
        "queue_position": waiting.index(each.id) + 1 if each.id in waiting else 0,
        "queue_size": len(waiting),
        "organization_id": each.organization,
        "initiator_id": each.initiator,
        "input": each.input,
        "type": each.type,
        "metadata": each.metadata,
        "logs_overflowed": False,
    }


def primary_proxy(state: State, url: str) -> dict[str, Any]:
    """Return the primary proxy, coderd itself."""
    primary = Proxy(state.deployment_id, "primary", "Default", "/emojis/1f3e1.png", "", "ok", state.now(), url=url)
    return {**proxy(primary), "wildcard_hostname": state.wildcard_hostname, "derp_enabled": False}


def proxy(each: Proxy) -> dict[str, Any]:
    return {
        "id": each.id,
        "name": each.name,
        "display_name": each.display_name,
        "icon_url": each.icon,
        "healthy": each.status == "ok",
        "path_app_url": each.url,
        "wildcard_hostname": each.wildcard_hostname,
        "derp_enabled": True,
        "derp_only": False,
        "status": {
            "status": each.status,
            "report": {"errors": list(each.errors), "warnings": list(each.warnings)},
            "checked_at": time(each.created_at),
        },
        "created_at": time(each.created_at),
        "updated_at": time(each.created_at),
        "deleted": each.deleted,
        "version": each.version,
    }
