# ruff: noqa: RUF012 - msgspec copies an empty default
"""How the health of Coder is checked, and what the check found."""

from datetime import datetime
from typing import Annotated

from .markers import Check, Schema
from .shared import IS_DURATION, AsSet, Part

MIN_INTERVAL = 60.0
"""Seconds; coderd itself checks at most every 10 minutes, unless it is configured otherwise."""
Interval = Annotated[
    str,
    Schema(maxLength=32),
    Check(
        f"{IS_DURATION} && (duration(self) == duration('0s') || duration(self) >= duration('1m'))",
        "must be at least 1m, or 0s to turn the check off",
    ),
]
Code = Annotated[
    str,
    Schema(maxLength=32),
    Check("self.matches(r'^[A-Z][A-Z0-9]+$')", "must be a code of Coder's health check, such as EACS03"),
]


class Health(Part, kw_only=True, frozen=True):
    """How the health of Coder is checked."""

    interval: Interval = "5m"
    """
    How often the operator reads the result of Coder's own health check. `0s` turns this off, and also the check for
    jobs and schedules that no provisioner serves.
    """
    ignore: Annotated[list[Code], AsSet, Schema(maxItems=100)] = []
    """Codes that do not count, such as `EACS03` in a cluster whose pods cannot reach the access URL."""


class HealthStatus(Part, kw_only=True, frozen=True):
    """What Coder's own health check found."""

    checked: datetime | None = None
    """
    When Coder first had this result. Later checks with the same result do not change it; the metric
    `coder_k8s_health_checked_timestamp_seconds` has the time of the last check.
    """
    severity: Annotated[str, Schema(enum=["ok", "warning", "error"])] = ""
    """The most severe result, without ignored codes and sections that are dismissed in Coder."""
    codes: list[str] = []
    """Codes of what Coder reports, the most severe first."""
    version: str = ""
    """Version of Coder that ran the check."""
