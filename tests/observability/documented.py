"""Checks at the end of every run that each condition and event that the operator wrote is in the reference.

The types allow only documented reasons. Which condition has which reason, and which object has which event, shows in
the audit logs of the API servers. After a run of all tests, they also show every example message.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import RESOURCES, CommonCondition
from coder_k8s.api.events import COMMON_EVENTS
from coder_k8s.api.reasons import COMMON_REASONS
from tests.security.audit import entries, is_operator, place, resource
from tests.support.selection import has_all_tests

STATUS = {f"{each.kind.plural}/status": each for each in RESOURCES}


def conditions() -> set[tuple[str, str, str]]:
    """Every documented condition: kind, type and reason.

    `Ready` and its like also have the reasons of the others, and `Ready` those of `Stalled`.
    """
    found: set[tuple[str, str, str]] = set()
    for each in RESOURCES:
        every = {reason for reasons in each.reasons.values() for reason in reasons}
        stalled = COMMON_REASONS[CommonCondition.STALLED]
        found |= {(each.kind.name, CommonCondition.READY.value, reason) for reason in stalled}
        found |= {(each.kind.name, type_, reason) for type_, reasons in each.reasons.items() for reason in reasons}
        for type_, reasons in COMMON_REASONS.items():
            found |= {(each.kind.name, type_, reason) for reason in every.union(reasons)}
    return found


def events() -> set[tuple[str, str, str]]:
    """Every documented event: kind, type and reason. An object that becomes `Stalled` has an event of that reason."""
    stalled = {(kind, "Warning", reason) for kind, type_, reason in conditions() if type_ == CommonCondition.STALLED}
    return stalled | {
        (each.kind.name, event.type, event) for each in RESOURCES for event in (*COMMON_EVENTS, *each.events)
    }


def undocumented(requests: Iterable[dict[str, Any]]) -> list[str]:
    """The conditions and events in these requests that the reference lacks."""
    documented = conditions() | events()
    found = {
        f"{' '.join(each)}, by {place(entry)}"
        for entry in requests
        if is_operator(entry) and isinstance(entry.get("requestObject"), dict)
        for each in _reported(entry)
        if each not in documented
    }
    return sorted(found)


def examples() -> set[tuple[str, str]]:
    """The reason and message of every documented example."""
    tables = (COMMON_REASONS, *(each.reasons for each in RESOURCES))
    listed = (reason for table in tables for reasons in table.values() for reason in reasons)
    return {(str(reason), reason.example) for reason in listed if reason.example}


def unobserved(requests: Iterable[dict[str, Any]]) -> list[str]:
    """The example messages that no condition in these requests has. Numbers and hexadecimal digits may differ."""
    observed = {
        (condition["reason"], _without_numbers(condition["message"]))
        for entry in requests
        if is_operator(entry) and isinstance(entry.get("requestObject"), dict)
        for condition in _conditions(entry)
    }
    missing = ((reason, text) for reason, text in examples() if (reason, _without_numbers(text)) not in observed)
    return sorted(f"{reason}: {text}" for reason, text in missing)


def _without_numbers(text: str) -> str:
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "0", text)


def _conditions(entry: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The conditions that a request writes to a custom resource."""
    if resource(entry["objectRef"]) not in STATUS:
        return []
    return (entry["requestObject"].get("status") or {}).get("conditions") or []


def _reported(entry: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Kind, type and reason of the conditions and events that a request reports about a custom resource."""
    what, body = resource(entry["objectRef"]), entry["requestObject"]
    for each in _conditions(entry):
        if each["type"] in {*CommonCondition, *STATUS[what].conditions}:
            yield STATUS[what].kind.name, each["type"], each["reason"]
    if what == "events" and "regarding" in body:
        yield body["regarding"]["kind"], body["type"], body["reason"]


class DocumentedReasons:
    """Fails a run in which the operator wrote a condition or event that the reference lacks.

    A run of all tests also fails if the operator never wrote one of the example messages.
    """

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._undocumented: list[str] = []
        self._unobserved: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._undocumented = undocumented(entries(self._audit, b'"reason":'))
        if exitstatus == pytest.ExitCode.OK and has_all_tests(session.config):
            self._unobserved = unobserved(entries(self._audit, b'"reason":'))
        if self._undocumented or self._unobserved:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, found in (
            ("conditions and events that api/reasons and api/events lack", self._undocumented),
            ("examples in api/reasons that no condition had", self._unobserved),
        ):
            if found:
                terminalreporter.section(title, red=True)
                terminalreporter.write_line("\n".join(found))
