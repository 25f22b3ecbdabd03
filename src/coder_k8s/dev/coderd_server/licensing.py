"""Licences of the stand-in, and what they entitle to."""

import base64
import binascii
import json
from datetime import datetime, timedelta
from typing import Any

KEY_ID = "stand-in"
SIGNATURE = "c3RhbmQtaW4"
LONGEST = timedelta(days=5 * 366)

FEATURES = (
    "access_control",
    "advanced_template_scheduling",
    "ai_governance_user_limit",
    "aibridge",
    "appearance",
    "audit_log",
    "boundary",
    "browser_only",
    "connection_log",
    "control_shared_ports",
    "custom_roles",
    "external_provisioner_daemons",
    "external_token_encryption",
    "high_availability",
    "managed_agent_limit",
    "multiple_external_auth",
    "multiple_organizations",
    "scim",
    "task_batch_actions",
    "template_rbac",
    "user_limit",
    "user_role_management",
    "workspace_batch_actions",
    "workspace_external_agent",
    "workspace_prebuilds",
    "workspace_proxy",
)
PREMIUM_ONLY = ("custom_roles", "multiple_organizations")


def make_license(
    now: datetime,
    *,
    feature_set: str = "premium",
    trial: bool = False,
    expires: timedelta = timedelta(days=365),
    grace: timedelta = timedelta(days=30),
    **claims: Any,
) -> str:
    """A licence that the stand-in takes for genuine; `expires` from now the grace period begins."""
    ends = now + expires
    payload = {
        "jti": "5f0c1c9e-0000-4000-8000-000000000001",
        "iat": int(now.timestamp()),
        "nbf": int(now.timestamp()),
        "license_expires": int(ends.timestamp()),
        "exp": int((ends + grace).timestamp()),
        "feature_set": feature_set,
        "trial": trial,
        "version": 3,
        **claims,
    }
    return ".".join((_encode({"alg": "EdDSA", "typ": "JWT", "kid": KEY_ID}), _encode(payload), SIGNATURE))


def claims_of(jwt: str) -> dict[str, Any]:
    """The claims of a licence, unverified."""
    return _decode(jwt.split(".")[1])


def is_genuine(jwt: str, now: datetime) -> bool:
    """Whether the stand-in takes a licence: signed by it, not over, not for too long."""
    try:
        header, payload, signature = jwt.split(".")
        over = datetime.fromtimestamp(_decode(payload)["exp"], now.tzinfo)
        return _decode(header)["kid"] == KEY_ID and signature == SIGNATURE and now < over < now + LONGEST
    except (ValueError, KeyError, binascii.Error):
        return False


def entitlement(claims: dict[str, Any], feature: str, now: datetime) -> str:
    """What one licence says about one feature."""
    covered = feature not in PREMIUM_ONLY or claims["feature_set"] == "premium"
    if not covered or not claims["nbf"] <= now.timestamp() < claims["exp"]:
        return "not_entitled"
    return "entitled" if now.timestamp() < claims["license_expires"] else "grace_period"


def _encode(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _decode(text: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return decoded
