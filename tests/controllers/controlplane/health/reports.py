"""Reports of coderd's health check."""

from collections.abc import Sequence
from typing import Any

import msgspec

from coder_k8s.coderd.health import HealthReport, HealthSettings
from coder_k8s.controllers.controlplane.health.verdict import SECTIONS, Environment, Verdict, judge

ENVIRONMENT = Environment()
SECTION_OF = {
    "EACS": "access_url",
    "EWS": "websocket",
    "EDB": "database",
    "EDERP": "derp",
    "ESTUN": "derp",
    "EWP": "workspace_proxy",
    "EPD": "provisioner_daemons",
}


def ok() -> dict[str, Any]:
    """A report without any problem."""
    section = {"severity": "ok", "warnings": [], "dismissed": False, "healthy": True}
    return {
        "time": "2026-11-15T19:28:07.108052368Z",
        "healthy": True,
        "severity": "ok",
        "coder_version": "v2.36.1",
        **{name: dict(section) for name in SECTIONS},
    }


def section_of(code: str) -> str:
    return next((section for start, section in SECTION_OF.items() if code.startswith(start)), "access_url")


def warning(code: str, message: str = "Text") -> dict[str, str]:
    return {"code": code, "message": message}


def with_code(code: str, severity: str = "error", *, as_error: bool = False, text: str = "Text") -> dict[str, Any]:
    """A report with one code, in the warnings or in the error of its section."""
    found = {"error": f"{code}: {text}"} if as_error else {"warnings": [warning(code, text)]}
    return with_section(section_of(code), severity=severity, **found)


def with_section(section: str, **fields: Any) -> dict[str, Any]:
    report = ok()
    report[section] |= fields
    return report


def decoded(report: object) -> HealthReport:
    return msgspec.json.decode(msgspec.json.encode(report), type=HealthReport)


def verdict(report: object, dismissed: Sequence[str | None] = (), environment: Environment = ENVIRONMENT) -> Verdict:
    return judge(decoded(report), HealthSettings([*dismissed]), environment)
