"""Licenses of the simulator, and their entitlements."""

import base64
import binascii
import json
import math
from datetime import datetime, timedelta
from typing import Any

KEY_ID = "simulator"
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
LIMITS = ("ai_governance_user_limit", "managed_agent_limit", "user_limit")
"""Features whose value in a license is a number."""
NOT_CONFIGURED = ("browser_only", "external_token_encryption", "scim")
"""Features that are not enabled in the options of the server."""
SWITCHED_ON = {
    "template_rbac": "Template RBAC",
    "external_provisioner_daemons": "External Provisioner Daemons",
    "advanced_template_scheduling": "Advanced Template Scheduling",
    "workspace_proxy": "Workspace Proxy",
    "user_role_management": "User Role Management",
    "access_control": "Access Control",
    "control_shared_ports": "Control Shared Ports",
    "aibridge": "AI Gateway",
}
"""Features that are enabled by default, in the order of coderd's warnings."""
WARN_WITHIN = timedelta(days=30)
WARN_WITHIN_TRIAL = timedelta(days=7)


def make_license(
    now: datetime,
    *,
    feature_set: str = "premium",
    trial: bool = False,
    expires: timedelta = timedelta(days=365),
    grace: timedelta = timedelta(days=30),
    **claims: Any,
) -> str:
    """Return a valid license; its grace period starts after `expires`."""
    ends = now + expires
    payload = {
        "jti": "5f0c1c9e-0000-4000-8000-000000000001",
        "iat": int(now.timestamp()),
        "nbf": int(now.timestamp()),
        "license_expires": int(ends.timestamp()),
        "exp": int((ends + grace).timestamp()),
        "account_id": "simulator",
        "account_type": "salesforce",
        "feature_set": feature_set,
        "features": {},
        "trial": trial,
        "version": 3,
        **claims,
    }
    return sign(payload)


def sign(claims: dict[str, Any]) -> str:
    """Return a license with these claims and the signature of the simulator."""
    return ".".join((_encode({"alg": "EdDSA", "typ": "JWT", "kid": KEY_ID}), _encode(claims), SIGNATURE))


def claims_of(jwt: str) -> dict[str, Any]:
    """Return the claims of a license, without verification."""
    return _decode(jwt.split(".")[1])


def defect(jwt: str, now: datetime) -> str:
    """Return coderd's error for a license; empty if the license is valid."""
    try:
        header, payload, signature = jwt.split(".")
        claims = _decode(payload)
        over = datetime.fromtimestamp(claims["exp"], now.tzinfo)
        good = _decode(header)["kid"] == KEY_ID and signature == SIGNATURE and now < over < now + LONGEST
    except (ValueError, KeyError, binascii.Error):
        good = False
    if not good:
        return "license has multiple issues; contact support"
    if not claims.get("license_expires"):
        return "license has invalid or missing license_expires claim"
    if claims.get("account_type") != "salesforce":
        return "license must have valid account type"
    return "" if claims.get("account_id") else "license must have valid account ID"


def is_genuine(jwt: str, now: datetime) -> bool:
    """Return whether a license is valid: signature, claims and validity period."""
    return not defect(jwt, now)


def entitlement(claims: dict[str, Any], feature: str, now: datetime) -> str:
    """Return the entitlement of a license for a feature."""
    if not is_covered(claims, feature) or not claims["nbf"] <= now.timestamp() < claims["exp"]:
        return "not_entitled"
    return "entitled" if now.timestamp() < claims["license_expires"] else "grace_period"


def is_covered(claims: dict[str, Any], feature: str) -> bool:
    """Return whether a license includes a feature, directly or in a feature set."""
    if (claims.get("features") or {}).get(feature, 0) > 0:
        return True
    return claims["feature_set"] == "premium" or (claims["feature_set"] != "" and feature not in PREMIUM_ONLY)


def expiry_warning(claims: dict[str, Any], now: datetime) -> str:
    """Return coderd's warning for a license that expires soon; empty if it does not."""
    left = claims["license_expires"] - now.timestamp()
    within = WARN_WITHIN_TRIAL if claims.get("trial") else WARN_WITHIN
    if not 0 < left <= within.total_seconds():
        return ""
    days = math.ceil(left / 86400)
    return f"Your license expires in {days} day{'' if days == 1 else 's'}."


def _encode(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _decode(text: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return decoded
