"""Whether the operator deleted only what it had seen, as it had seen it: told at the end of every run.

The API servers of a run write down every deletion that the operator asks of them, with its options. Each must hold for
one uid at one resourceVersion. There is no exception: Leases and events are never deleted, and collections neither.
"""

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from .audit import DELETIONS, entries, is_operators, place

NEEDED = ("uid", "resourceVersion")
CUT = "Connection closed early"
"""What an API server says, with a status of success, of a request whose sender went before any answer."""


def careless(requests: Iterable[dict[str, Any]]) -> list[str]:
    """The deletions of the operator that could have met something else than what it had seen."""
    return [
        f"{place(entry)}: without {' and '.join(lacking)}"
        for entry in requests
        if entry["verb"] in DELETIONS and is_operators(entry) and (lacking := _lacks(entry))
    ]


def _lacks(entry: dict[str, Any]) -> list[str]:
    """What a deletion does not say. That of a collection can say nothing about each of its members."""
    if entry["verb"] == "delete" and not _was_read(entry):
        return []
    options = entry.get("requestObject") or {}
    given = options.get("preconditions") or {} if entry["verb"] == "delete" else {}
    return [name for name in NEEDED if not given.get(name)]


def _was_read(entry: dict[str, Any]) -> bool:
    """Whether the API server came to read the options. Of a request that ended before that they are unknown."""
    status = entry["responseStatus"]
    return "requestObject" in entry or (status["code"] < HTTPStatus.BAD_REQUEST and status.get("message") != CUT)


class CarefulDeletion:
    """Fails a run in which the operator deleted without both preconditions."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._told: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._told = careless(entries(self._audit, b'"verb":"delete'))
        if self._told:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._told:
            terminalreporter.section("deletions that lack preconditions, see tests/security/deletions.py", red=True)
            terminalreporter.write_line("\n".join(self._told))
