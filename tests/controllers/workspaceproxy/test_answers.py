"""Answers of coderd are kept whole, and reported as they are."""

from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.api import reasons
from coder_k8s.api.conditions import WorkspaceProxyCondition
from coder_k8s.coderd import errors
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.workspaceproxy.verdicts import (
    NOT_ASKED,
    NOT_MANAGED,
    Answers,
    Verdict,
    refusal,
    tell,
)
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.conditions import Finding
from coder_k8s.kube.objects import Key

KEY = Key("golden", "sydney")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
REGISTERED = WorkspaceProxyCondition.REGISTERED
FOUND = Verdict(True, reasons.REGISTERED, "Registered as sydney")


@pytest.fixture
def answers() -> Answers:
    return Answers(lambda: NOW, Backoff(2.0, 120.0, lambda: 1.0))


@pytest.mark.parametrize(
    ("verdict", "ready", "stalled"),
    [
        (FOUND, True, False),
        (NOT_MANAGED, True, False),
        (NOT_ASKED, None, False),
        (Verdict(False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True), True, False),
        (Verdict(False, reasons.UNHEALTHY, "it is slow"), False, False),
        (Verdict(False, reasons.NAME_TAKEN, "rename it", stalled=True), False, True),
    ],
)
def test_a_verdict_in_the_report(verdict: Verdict, ready: bool | None, stalled: bool) -> None:
    report = Report()
    tell(report, REGISTERED, verdict)
    assert report.findings == [Finding(REGISTERED, verdict.holds, verdict.reason, verdict.message)]
    summary = {finding.type: finding.holds for finding in report.conclude()[:3]}
    assert (summary["Ready"], summary["Stalled"]) == (ready, stalled)


def test_what_is_always_said() -> None:
    assert (NOT_MANAGED.holds, NOT_MANAGED.reason) == (None, "NotManaged")
    assert "proxySessionTokenSecretRef" in NOT_MANAGED.message
    assert (NOT_ASKED.holds, NOT_ASKED.reason) == (None, "Unknown")
    assert NOT_ASKED.message


def test_a_proxy_that_was_found(answers: Answers) -> None:
    healthy = Verdict(True, reasons.HEALTHY, "fine")
    found = answers.found(KEY, "this", FOUND, healthy)
    assert (found.about, found.registered, found.healthy) == ("this", FOUND, healthy)
    assert (found.failures, found.until) == (0, NOW + timedelta(seconds=60))


def test_a_refusal(answers: Answers) -> None:
    refused = Verdict(None, reasons.UNAVAILABLE, "no answer")
    for failures in (1, 2):
        kept = answers.refused(KEY, "this", refused)
        assert (kept.about, kept.registered, kept.healthy, kept.failures) == ("this", refused, NOT_ASKED, failures)
    assert answers.get(KEY, "this") == kept
    assert answers.get(KEY, "that") is None


def test_an_answer_stands_to_its_last_second() -> None:
    now = NOW
    answers = Answers(lambda: now, Backoff(2.0, 120.0, lambda: 1.0))
    answer = answers.found(KEY, "", FOUND, Verdict(True, reasons.HEALTHY))
    now = answer.until - timedelta(milliseconds=1)
    assert answers.get(KEY, "") == answer
    now = answer.until
    assert answers.get(KEY, "") is None


def test_forgetting_what_is_not_known(answers: Answers) -> None:
    answers.forget(KEY)


@pytest.mark.parametrize(
    "error",
    [
        errors.NotLicensed("in the words of coderd"),
        errors.Unauthorized("in the words of coderd"),
        errors.Forbidden("in the words of coderd"),
        errors.Invalid("in the words of coderd"),
        errors.RateLimited("in the words of coderd", 60),
        errors.Unavailable("in the words of coderd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_words_of_coderd(error: errors.CoderdError) -> None:
    assert refusal(error, given=True, user="They").message.endswith("in the words of coderd")


def test_a_build_without_workspace_proxies() -> None:
    assert "workspace proxies" in refusal(errors.NotSupported("x"), given=True, user="They").message
