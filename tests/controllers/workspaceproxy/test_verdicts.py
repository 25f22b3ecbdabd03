"""What coderd's answers mean, and how long they stand."""

from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.api import reasons
from coder_k8s.coderd import errors
from coder_k8s.coderd.types import ProxyReport, ProxyStatus, WorkspaceProxy
from coder_k8s.controllers.workspaceproxy.registration import Blocked
from coder_k8s.controllers.workspaceproxy.verdicts import Answers, Verdict, health, name_taken, refusal
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.objects import Key

KEY = Key("golden", "sydney")
REGISTERED = Verdict(True, reasons.REGISTERED)


def seen(status: str, *problems: str, warnings: list[str] | None = None, version: str = "") -> WorkspaceProxy:
    report = ProxyReport(errors=list(problems) or None, warnings=warnings)
    state = ProxyStatus(status=status, report=report)
    healthy = status == "ok"
    return WorkspaceProxy(
        id="a", name="sydney", display_name="", icon_url="", healthy=healthy, version=version, status=state
    )


@pytest.mark.parametrize(
    ("found", "replicas", "expected"),
    [
        (seen("ok"), 1, Verdict(True, reasons.HEALTHY, "Coder reaches the proxy")),
        (seen("ok", version="v2"), 1, Verdict(True, reasons.HEALTHY, "Coder reaches the proxy, which runs v2")),
        (seen("ok", warnings=["slow"]), 1, Verdict(True, reasons.HEALTHY, "Coder reaches the proxy; warning: slow")),
        (seen("unreachable"), 1, Verdict(False, reasons.UNREACHABLE, "coderd cannot reach the proxy")),
        (seen("unregistered"), 2, Verdict(False, reasons.UNREGISTERED, "coderd has not heard from the proxy yet")),
        (
            seen("unhealthy", "one", "two", warnings=["three"]),
            1,
            Verdict(
                False, reasons.UNHEALTHY, "coderd reaches the proxy and finds it unhealthy: one; two; warning: three"
            ),
        ),
        (seen(""), 1, Verdict(None, reasons.UNKNOWN, "coderd does not say how the proxy is")),
        (seen("unregistered"), 0, Verdict(False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True)),
    ],
)
def test_health(found: WorkspaceProxy, replicas: int, expected: Verdict) -> None:
    assert health(found, replicas, "") == expected


def test_health_without_the_token() -> None:
    found = health(seen("unhealthy", "cannot use a:secret", "secret is bad"), 1, "a:secret")
    assert found.message.endswith("cannot use [redacted]; [redacted] is bad")


@pytest.mark.parametrize(
    ("trouble", "holds", "reason", "stalled"),
    [
        (errors.NotLicensed("x"), False, "NotEntitled", True),
        (errors.NotSupported("x"), False, "NotSupported", True),
        (errors.Unauthorized("x"), False, "CredentialsRejected", True),
        (errors.Forbidden("x"), False, "Forbidden", True),
        (errors.Conflict("x"), None, "Unavailable", False),
        (errors.Invalid("x"), False, "Invalid", True),
        (errors.RateLimited("x", 60), None, "RateLimited", False),
        (errors.Unavailable("x"), None, "Unavailable", False),
        (errors.NotFound("x"), None, "Unavailable", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_refusals(trouble: errors.CoderdError, holds: bool | None, reason: str, stalled: bool) -> None:
    verdict = refusal(trouble, given=True, user="They")
    assert (verdict.holds, verdict.reason, verdict.stalled) == (holds, reason, stalled)
    assert refusal(trouble, given=False, user="They").stalled == (
        stalled and not isinstance(trouble, errors.Unauthorized)
    )


def test_a_missing_right_is_named() -> None:
    message = refusal(errors.Forbidden("no"), given=True, user="The user of the token in Secret s").message
    assert message.startswith("The user of the token in Secret s may not manage workspace proxies: ")
    assert "the role Owner" in message
    assert message.endswith("Coder answered: no")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            Blocked("sydney", adoptable=True),
            "Coder already has a proxy named sydney that this object did not register; delete it in Coder, rename this "
            'object, or take it over with the annotation coder.com/adopt: "true"',
        ),
        (
            Blocked("sydney", adoptable=True, in_use=True),
            "Coder already has a proxy named sydney that this object did not register, and that is running; delete it "
            'in Coder, rename this object, or stop it and take it over with the annotation coder.com/adopt: "true"',
        ),
        (
            Blocked("sydney"),
            "Coder already has a proxy named sydney that this object did not register; delete it in Coder or rename "
            "this object",
        ),
        (
            Blocked("sydney", claimed=True),
            "Coder already has a proxy named sydney that another CoderWorkspaceProxy claims; rename this object",
        ),
        (Blocked("Primary"), "The name Primary is that of the Coder deployment itself; rename this object"),
    ],
)
def test_a_name_that_is_taken(found: Blocked, expected: str) -> None:
    assert name_taken(found) == Verdict(False, reasons.NAME_TAKEN, expected, stalled=True)


class Time:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_an_answer_stands_for_what_was_asked_until_its_time_is_over() -> None:
    time = Time()
    answers = Answers(time, Backoff(2.0, 120.0, lambda: 1.0))
    answer = answers.found(KEY, "this", REGISTERED, Verdict(True, reasons.HEALTHY))
    assert answers.get(KEY, "this") == answer
    assert answers.get(KEY, "that") is None
    assert answers.get(Key("golden", "perth"), "this") is None
    time.now += timedelta(seconds=60)
    assert answers.get(KEY, "this") is None
    answers.found(KEY, "this", REGISTERED, Verdict(True, reasons.HEALTHY))
    answers.forget(KEY)
    assert answers.get(KEY, "this") is None


def test_troubles_are_waited_out_ever_longer_and_a_good_answer_ends_that() -> None:
    answers = Answers(Time(), Backoff(2.0, 120.0, lambda: 1.0))
    away = Verdict(None, reasons.UNAVAILABLE)
    waits = [answers.left(answers.refused(KEY, number, away)) for number in range(9)]
    assert waits == [2, 4, 8, 16, 32, 64, 120, 120, 120]
    answers.found(KEY, "", REGISTERED, Verdict(True, reasons.HEALTHY))
    assert answers.left(answers.refused(KEY, "", away)) == 2


def test_what_needs_somebody_is_looked_at_steadily() -> None:
    answers = Answers(Time(), Backoff(2.0, 120.0, lambda: 1.0))
    waits = {
        reasons.NOT_ENTITLED: 110,
        reasons.NOT_SUPPORTED: 110,
        reasons.NAME_TAKEN: 30,
        reasons.FORBIDDEN: 110,
    }
    for reason, wait in waits.items():
        for _ in range(3):
            assert answers.left(answers.refused(KEY, "", Verdict(False, reason))) == wait


def test_a_proxy_that_is_not_well_is_looked_at_soon() -> None:
    answers = Answers(Time(), Backoff(2.0, 120.0, lambda: 1.0))
    for verdict, wait in (
        (Verdict(True, reasons.HEALTHY), 60),
        (Verdict(False, reasons.UNHEALTHY), 10),
        (Verdict(None, reasons.UNKNOWN), 10),
        (Verdict(False, reasons.SCALED_TO_ZERO, satisfied=True), 60),
    ):
        assert answers.left(answers.found(KEY, "", REGISTERED, verdict)) == wait
