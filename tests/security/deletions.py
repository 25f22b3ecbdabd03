"""Checks at the end of every run that all deletions of the operator have preconditions.

The audit logs of the API servers contain every deletion by the operator, with its options. Each must have a UID and a
resourceVersion as preconditions. There are no exceptions: the operator never deletes Leases, events or collections.
"""

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from .audit import DELETIONS, entries, is_operator, place

NEEDED = ("uid", "resourceVersion")
CUT = "Connection closed early"
"""The message of an API server, with a status of success, for a request whose client disconnected early."""


def unconditional_deletions(requests: Iterable[dict[str, Any]]) -> list[str]:
    """The deletions of the operator that lack a precondition."""
    return [
        f"{place(entry)}: without {' and '.join(lacking)}"
        for entry in requests
        if entry["verb"] in DELETIONS and is_operator(entry) and (lacking := _lacks(entry))
    ]


def _lacks(entry: dict[str, Any]) -> list[str]:
    """The preconditions that a deletion lacks. The deletion of a collection cannot have any."""
    if entry["verb"] == "delete" and not _was_read(entry):
        return []
    options = entry.get("requestObject") or {}
    given = options.get("preconditions") or {} if entry["verb"] == "delete" else {}
    return [name for name in NEEDED if not given.get(name)]


def _was_read(entry: dict[str, Any]) -> bool:
    """Whether the API server read the options. They are unknown for a request that ended earlier."""
    status = entry["responseStatus"]
    return "requestObject" in entry or (status["code"] < HTTPStatus.BAD_REQUEST and status.get("message") != CUT)


class DeletionPreconditions:
    """Fails a run in which the operator deleted an object without both preconditions."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._findings: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._findings = unconditional_deletions(entries(self._audit, b'"verb":"delete'))
        if self._findings:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._findings:
            terminalreporter.section("deletions that lack preconditions, see tests/security/deletions.py", red=True)
            terminalreporter.write_line("\n".join(self._findings))
