"""The summary of the conditions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from coder_k8s.api import reasons
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.api.reasons import Reason
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.report import MESSAGE_LIMIT, Outcome, Report, StatusReport, sentence
from coder_k8s.kube.conditions import Condition, Finding, Status

NOW = datetime(2026, 3, 1, tzinfo=UTC)
UP_TO_DATE = {"Ready": (True, "AllReady"), "Reconciling": (False, "UpToDate"), "Stalled": (False, "UpToDate")}


def test_a_message_does_not_follow_what_differs_in_each_attempt() -> None:
    messages = {
        of(add("Access", False, "Error", f"HTTP 500: read tcp 10.0.0.7:{port}->10.0.0.9:5432: EOF"))
        .conclude()[0]
        .message
        for port in (44536, 44538)
    }
    assert messages == {"HTTP 500: read tcp 10.0.0.9:5432: EOF"}


def summary(report: Report) -> dict[str, tuple[bool | None, str]]:
    return {finding.type: (finding.status, finding.reason) for finding in report.conclude()[:3]}


def of(*steps: Callable[[Report], None]) -> Report:
    report = Report()
    for step in steps:
        step(report)
    return report


def add(*args: Any, **options: Any) -> Callable[[Report], None]:
    return lambda report: report.add(*args, **options)


def stall(reason: Reason) -> Callable[[Report], None]:
    return lambda report: report.stall(reason, "Do something")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([], UP_TO_DATE, id="nothing to wait for"),
        pytest.param([add("Available", True, "Serving")], UP_TO_DATE, id="all hold"),
        pytest.param([add("Access", False, "Disabled", satisfied=True)], UP_TO_DATE, id="false and meant so"),
        pytest.param([add("License", None, "NotConfigured", satisfied=True)], UP_TO_DATE, id="unknown and meant so"),
        pytest.param(
            [add("Available", False, "NoReplicasReady")],
            {
                "Ready": (False, "NoReplicasReady"),
                "Reconciling": (True, "NoReplicasReady"),
                "Stalled": (False, "Progressing"),
            },
            id="under way",
        ),
        pytest.param(
            [add("Available", None, "Pending")],
            {"Ready": (None, "Pending"), "Reconciling": (True, "Pending"), "Stalled": (False, "Progressing")},
            id="not known yet",
        ),
        pytest.param(
            [add("Available", True, "RolloutInProgress", satisfied=False)],
            {
                "Ready": (False, "RolloutInProgress"),
                "Reconciling": (True, "RolloutInProgress"),
                "Stalled": (False, "Progressing"),
            },
            id="True, but not for this generation",
        ),
        pytest.param(
            [add("Available", True, "MinimumReplicasReady", satisfied=False, summary="RolloutInProgress")],
            {
                "Ready": (False, "RolloutInProgress"),
                "Reconciling": (True, "RolloutInProgress"),
                "Stalled": (False, "Progressing"),
            },
            id="True, with another reason for the summary",
        ),
        pytest.param(
            [add("Available", False, "NoReplicasReady"), add("Access", None, "Pending")],
            {
                "Ready": (False, "NoReplicasReady"),
                "Reconciling": (True, "NoReplicasReady"),
                "Stalled": (False, "Progressing"),
            },
            id="the first open condition is the summary",
        ),
        pytest.param(
            [add("Available", False, "NoReplicasReady"), add("License", False, "Invalid", "refused", stalled=True)],
            {"Ready": (False, "Invalid"), "Reconciling": (False, "Stalled"), "Stalled": (True, "Invalid")},
            id="a condition that needs user action is the summary",
        ),
        pytest.param(
            [stall(reasons.NAME_TAKEN), add("License", False, "Invalid", stalled=True)],
            {"Ready": (False, "NameTaken"), "Reconciling": (False, "Stalled"), "Stalled": (True, "NameTaken")},
            id="the first culprit is named",
        ),
    ],
)
def test_summary(steps: list[Callable[[Report], None]], expected: dict[str, Any]) -> None:
    assert summary(of(*steps)) == expected


@pytest.mark.parametrize(
    ("steps", "ready"),
    [
        ([], (True, "ScaledToZero")),
        ([add("Available", False, "NoReplicasReady", satisfied=True)], (True, "ScaledToZero")),
        ([add("Available", True, "RolloutInProgress", satisfied=False)], (False, "RolloutInProgress")),
        ([stall(reasons.NAME_TAKEN)], (False, "NameTaken")),
    ],
)
def test_ready_while_no_pods_are_wanted(steps: list[Callable[[Report], None]], ready: tuple[bool, str]) -> None:
    report = of(*steps)
    report.scaled_to_zero = True
    assert summary(report)["Ready"] == ready


def test_message_of_a_ready_object() -> None:
    report = Report()
    assert report.conclude()[0].message == "All components are ready"
    report.scaled_to_zero = True
    assert report.conclude()[0].message == "Scaled to zero"


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("False", False), ("Unknown", None), (None, None)])
def test_retained_condition(status: Status | None, expected: bool | None) -> None:
    known = Condition(type="License", status=status or "True", reason="Old", message="old", last_transition_time=NOW)
    report = Report([known] if status else [])
    report.retain("License", reasons.SCALED_TO_ZERO, "Scaled to zero")
    assert report.findings == [Finding("License", expected, "ScaledToZero", "Scaled to zero")]
    assert summary(report) == UP_TO_DATE


def test_findings_follow_the_summary_in_order() -> None:
    report = of(add("Available", True, "Serving", "1 of 1"), add("Exposed", True, "Applied"))
    assert report.conclude()[3:] == [
        Finding("Available", True, "Serving", "1 of 1"),
        Finding("Exposed", True, "Applied"),
    ]


def test_the_summary_has_the_message_of_the_first_stalled_condition() -> None:
    report = of(add("License", False, "Invalid", "coderd rejected it.", stalled=True))
    assert [finding.message for finding in report.conclude() if finding.type in ("Ready", "Stalled")] == [
        "Coderd rejected it",
        "Coderd rejected it",
    ]


def test_the_summary_has_the_message_of_the_first_unsatisfied_condition() -> None:
    report = of(add("Available", False, "Pulling", "1 of 2"), add("License", False, "Pending", "later"))
    assert [finding.message for finding in report.conclude()[:3]] == ["1 of 2", "1 of 2", "No user action is required"]


@pytest.mark.parametrize("steps", [[], [add("Available", None, "Unknown", "not seen")], [add("Exposed", True, "Yes")]])
def test_an_interrupt_precedes_all_conditions(steps: list[Callable[[Report], None]]) -> None:
    report = of(*steps)
    report.interrupt(reasons.PROXY_UNREACHABLE, "No answer")
    assert report.conclude()[:3] == [
        Finding("Ready", False, "ProxyUnreachable", "No answer"),
        Finding("Reconciling", True, "ProxyUnreachable", "No answer"),
        Finding("Stalled", False, "Progressing", "No user action is required"),
    ]


@pytest.mark.parametrize(
    ("reason", "types", "expected"),
    [
        (reasons.PENDING, ("License",), True),
        (reasons.PENDING, ("Available", "License"), True),
        (reasons.PENDING, ("Available",), False),
        (reasons.MINIMUM_REPLICAS_READY, ("License",), False),
        (reasons.MINIMUM_REPLICAS_READY, (), False),
    ],
)
def test_whether_a_condition_has_a_reason(reason: Reason, types: tuple[str, ...], expected: bool) -> None:
    report = of(add("Available", True, "MinimumReplicasReady"), add("License", False, "Pending"))
    assert report.has_reason(reason, *types) is expected


@pytest.mark.parametrize(("length", "kept"), [(1, 1), (4096, 4096), (4097, 4095), (100_000, 4095)])
def test_a_long_message_is_shortened(length: int, kept: int) -> None:
    assert MESSAGE_LIMIT == 4096
    cut = "X" + "x" * (kept - 1) + ("" if kept == length else "…")
    report = of(add("License", False, "Invalid", "x" * length, stalled=True))
    messages = {finding.type: finding.message for finding in report.conclude()}
    assert messages["License"] == messages["Ready"] == messages["Stalled"] == cut


def test_the_shortest_requeue_applies() -> None:
    report = Report()
    assert report.requeue is None
    for seconds in (30.0, 10.0, 60.0):
        report.requeue_after(seconds)
    assert report.requeue == 10.0


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("Available", True, reasons.APPLIED, "It is applied"),
        Outcome("Available", False, reasons.PENDING, "It is pending"),
        Outcome("Available", None, reasons.DISABLED, "It is disabled", satisfied=True),
        Outcome("Available", False, reasons.SECRET_MISSING, "The Secret is missing", stalled=True),
        Outcome("Available", True, reasons.APPLIED),
    ],
)
def test_outcome_is_a_condition(outcome: Outcome) -> None:
    report, expected = Report(), Report()
    report.add_outcome(outcome)
    type_, status, reason, message, satisfied, stalled = outcome
    expected.add(type_, status, reason, message, satisfied=satisfied, stalled=stalled)
    assert report.conclude() == expected.conclude()
    assert Finding(type_, status, str(reason), message) in report.conclude()
    assert (message == "") == (outcome == Outcome("Available", True, reasons.APPLIED))


def test_blocked_object_refers_to_its_stalled_condition() -> None:
    report = of(stall(reasons.NAME_TAKEN))
    assert report.conclude()[:3] == [
        Finding("Ready", False, reasons.NAME_TAKEN, "Do something"),
        Finding("Reconciling", False, reasons.STALLED, "Blocked; see the Stalled condition"),
        Finding("Stalled", True, reasons.NAME_TAKEN, "Do something"),
    ]


def test_error_makes_the_object_not_ready() -> None:
    report = of(add("Available", True, "Serving"))
    report.interrupt(reasons.RETRYING, "The API server failed")
    assert report.conclude()[0] == Finding("Ready", False, reasons.RETRYING, "The API server failed")
    assert not report.scaled_to_zero
    assert not report.retain_conditions


def test_report_takes_over_what_another_draft_has() -> None:
    report, other = StatusReport(ProvisionerStatus()), draft(ProvisionerStatus())
    other.provisioner_key_name = "build"
    report.update(other)
    assert report.fields == {"provisioner_key_name": "build"}
    assert report.before == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("pod a: exit code 1: line\nnext \x1b[31mred", "Pod a: exit code 1: line next  [31mred"),
        (
            "cannot connect to postgres://coder:hunter2@db:5432/coder",
            "Cannot connect to postgres://coder:[redacted]@db:5432/coder",
        ),
        ("postgres://:hunter2@db", "Postgres://:[redacted]@db"),
        ("http://coder.example.com:8080/a@b", "Http://coder.example.com:8080/a@b"),
    ],
)
def test_message_is_one_printable_line_without_a_password(message: str, expected: str) -> None:
    assert sentence(message) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Get https://host/path failed", "Get https://host/path failed"),
        ("postgres://coder:secret@db:5432/x", "Postgres://coder:[redacted]@db:5432/x"),
        ("postgres://coder:se@cret@db", "Postgres://coder:[redacted]@db"),
        (
            'parse "postgres://coder:s/ecret@db:1/x": invalid port',
            'Parse "postgres://coder:[redacted]@db:1/x": invalid port',
        ),
        ("Get //admin:secret@host/healthz", "Get //admin:[redacted]@host/healthz"),
        ("https://secret@github.com", "Https://[redacted]@github.com"),
        ("user=coder password='se cret' host=db", "User=coder password=[redacted] host=db"),
        ("password=secret&x=1", "Password=[redacted]&x=1"),
        ("coder_session_token=abcdefghij-x; path=/", "Coder_session_token=[redacted]; path=/"),
        ("Image coder@sha256:1234 cannot be pulled", "Image coder@sha256:1234 cannot be pulled"),
    ],
)
def test_passwords_are_redacted(text: str, expected: str) -> None:
    assert sentence(text) == expected
