"""The stand-in's things in the form that coderd sends them."""

from datetime import datetime
from typing import Any

from coder_k8s.dev.coderd_server.licensing import claims_of, is_genuine
from coder_k8s.dev.coderd_server.state import BUILT_IN_KEY, Daemon, Proxy, State, StoredKey, StoredLicense, User


def time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
        "email": f"{who.username}@example.com",
        "created_at": time(state.started_at),
        "updated_at": time(state.started_at),
        "last_seen_at": time(state.started_at),
        "status": who.status,
        "login_type": who.login_type,
        "organization_ids": [state.organization_id] if who.in_organization else [],
        "roles": [{"name": role, "display_name": role.title()} for role in who.roles],
    }
    return body if state.is_old else {**body, "has_ai_seat": False}


def organization(state: State, name: str) -> dict[str, Any]:
    default = state.organizations[name] == state.organization_id
    body = {
        "id": state.organizations[name],
        "name": name,
        "display_name": name.title(),
        "icon": "",
        "description": "Builtin default organization." if default else "",
        "created_at": time(state.started_at),
        "updated_at": time(state.started_at),
        "is_default": default,
    }
    return body if state.is_old else {**body, "default_org_member_roles": ["organization-workspace-access"]}


def entitlements(state: State) -> dict[str, Any]:
    genuine = [each for each in state.licenses if is_genuine(each.jwt, state.now())]
    features = {}
    for name in state.feature_names():
        granted = state.entitlement(name)
        features[name] = {"entitlement": granted, "enabled": granted != "not_entitled"}
    features["user_limit"]["actual"] = 1
    return {
        "features": features,
        "warnings": [],
        "errors": [
            f"Invalid license ({each.uuid}) parsing claims: ed25519: verification error"
            for each in state.licenses
            if each not in genuine
        ],
        "has_license": bool(genuine),
        "trial": any(claims_of(each.jwt)["trial"] for each in genuine),
        "require_telemetry": False,
        "refreshed_at": time(state.refreshed_at),
    }


def license(stored: StoredLicense) -> dict[str, Any]:  # noqa: A001
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
    names = {stored.id: stored.name for stored in state.keys.values()} | {BUILT_IN_KEY: "built-in"}
    return {
        "id": each.id,
        "organization_id": state.organization_id,
        "key_id": each.key,
        "created_at": time(each.seen_at),
        "last_seen_at": time(each.seen_at),
        "name": each.name,
        "version": each.version,
        "api_version": api_version(state),
        "provisioners": ["terraform"],
        "tags": each.tags,
        "key_name": names[each.key],
        "status": each.status,
        "current_job": each.current_job,
        "previous_job": each.previous_job,
    }


def proxy(each: Proxy) -> dict[str, Any]:
    return {
        "id": each.id,
        "name": each.name,
        "display_name": each.display_name,
        "icon_url": each.icon,
        "healthy": each.status == "ok",
        "path_app_url": "",
        "wildcard_hostname": "",
        "derp_enabled": True,
        "derp_only": False,
        "status": {
            "status": each.status,
            "report": {"errors": list(each.errors) or None, "warnings": list(each.warnings) or None},
            "checked_at": time(each.created_at),
        },
        "created_at": time(each.created_at),
        "updated_at": time(each.created_at),
        "deleted": False,
        "version": "",
    }
