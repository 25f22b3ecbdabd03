"""The health report of the simulator: as recorded, except for what tests set.

A report is the result of one run of coderd's checks, and coderd returns it for ten minutes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")
REFRESH = timedelta(minutes=10)
SECTIONS = {
    "derp": "DERP",
    "access_url": "AccessURL",
    "websocket": "Websocket",
    "database": "Database",
    "workspace_proxy": "WorkspaceProxy",
    "provisioner_daemons": "ProvisionerDaemons",
}
"""The sections of a report, with their names in the settings."""
RANKS = ("ok", "warning", "error")


class Health:
    """What coderd's checks find; `timed_out` is the detail of the response if they do not end in time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._recorded: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
        self._set: dict[str, dict[str, Any]] = {}
        self._report: dict[str, Any] | None = None
        self.checked_at = now()
        self.dismissed: list[str] = []
        self.timed_out = ""

    def set_health(
        self,
        section: str,
        severity: str = "ok",
        warnings: Sequence[Mapping[str, str]] = (),
        error: str = "",
        **details: Any,
    ) -> None:
        """Set what the checks find in a section from the next request on; a warning has a code and a message."""
        found = {"severity": severity, "warnings": [dict(each) for each in warnings], **details}
        if section != "provisioner_daemons":
            found["healthy"] = severity != "error"
        self._set[section] = {**found, **({"error": error} if error else {})}
        self.check_again()

    def dismiss_health(self, sections: Sequence[str]) -> None:
        """Dismiss sections by their names in the settings, such as DERP."""
        self.dismissed = list(sections)

    def check_again(self) -> None:
        """Run the checks at the next request."""
        self._report = None

    def report(self, live: Mapping[str, Mapping[str, Any]], *, force: bool) -> dict[str, Any]:
        """Return the report of the last run; `live` has what a run finds in the state of the simulator."""
        if self._report is None or force or self._now() - self.checked_at >= REFRESH:
            self.checked_at = self._now()
            self._report = self._run(live)
        sections = {name: self._with_dismissal(name, self._report[name]) for name in SECTIONS}
        return {**self._report, **sections}

    def _run(self, live: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {
            name: {**self._recorded.get(name, {}), **live.get(name, {}), **self._set.get(name, {})} for name in SECTIONS
        }
        ranks = {name: RANKS.index(section["severity"]) for name, section in found.items()}
        return {
            "healthy": max(ranks.values()) < RANKS.index("error") and ranks["access_url"] == 0,
            "severity": RANKS[max(ranks.values())],
            **found,
        }

    def _with_dismissal(self, name: str, section: dict[str, Any]) -> dict[str, Any]:
        """Return a section with its dismissal, which coderd never shows for provisioner daemons."""
        shown = SECTIONS[name] in self.dismissed and name != "provisioner_daemons"
        return {**section, "dismissed": shown}
