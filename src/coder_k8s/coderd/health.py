"""Types of coderd's health check, with the fields that the operator reads.

A report can have megabytes, because it includes the logs of every relay and every provisioner daemon. Fields that are
not listed here are skipped while it is decoded. Lists are decoded only if they are needed and not too large: millions
of empty entries would need a multiple of the memory of the report. Every field can be absent or null.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")

WARNINGS_LIMIT = 1024 * 1024
"""Bytes of the warnings of a section. Larger ones are not read."""
REGIONS_LIMIT = 4 * 1024 * 1024
"""Bytes of the regions. Larger ones are not read."""
_NULL = msgspec.Raw(b"null")


class HealthMessage(msgspec.Struct, frozen=True):
    """A warning."""

    code: str | None = None
    message: str | None = None


AnyWarning = HealthMessage | str | None
"""Versions of coderd without codes send plain text."""


class HealthSection(msgspec.Struct, frozen=True):
    """The result of one check; the error has the form `CODE: text`."""

    severity: str | None = None
    """ok, warning or error"""
    warnings: msgspec.Raw = _NULL
    error: str | None = None
    dismissed: bool | None = None
    """Never set for `provisioner_daemons`; the settings are."""

    def read_warnings(self) -> list[AnyWarning]:
        return _read(self.warnings, list[AnyWarning], WARNINGS_LIMIT) or []


class RelayNode(msgspec.Struct, frozen=True):
    """A node of a DERP region."""

    stun_only: bool | None = msgspec.field(name="STUNOnly", default=None)


class RelayReport(msgspec.Struct, frozen=True):
    """The check of one node."""

    node: RelayNode | None = None
    can_exchange_messages: bool | None = None


class RelayRegion(msgspec.Struct, frozen=True):
    """The check of one DERP region."""

    severity: str | None = None
    node_reports: list[RelayReport | None] | None = None


class RelaySection(HealthSection, frozen=True):
    """The check of the DERP relays."""

    regions: msgspec.Raw = _NULL

    def read_regions(self) -> dict[str, RelayRegion | None]:
        return _read(self.regions, dict[str, RelayRegion | None], REGIONS_LIMIT) or {}


class HealthReport(msgspec.Struct, frozen=True):
    """The result of one run of all checks."""

    time: str | None = None
    """Identifies the run: each replica keeps the result of its own last run."""
    severity: str | None = None
    coder_version: str | None = None
    access_url: HealthSection | None = None
    websocket: HealthSection | None = None
    database: HealthSection | None = None
    derp: RelaySection | None = None
    workspace_proxy: HealthSection | None = None
    provisioner_daemons: HealthSection | None = None


class HealthSettings(msgspec.Struct, frozen=True):
    """The sections that an administrator dismissed, such as `ProvisionerDaemons`."""

    dismissed_healthchecks: list[str | None] | None = None


def _read(raw: msgspec.Raw, kind: type[T], limit: int) -> T | None:
    """Decode a part of a report; `None` if it is too large or not of this type."""
    if len(raw) > limit:
        return None
    try:
        return msgspec.json.decode(raw, type=kind | None)
    except (msgspec.DecodeError, RecursionError):
        return None
