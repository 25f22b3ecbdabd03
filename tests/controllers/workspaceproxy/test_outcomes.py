"""The conditions of a workspace proxy, and how often coderd is queried for them."""

import pytest

from coder_k8s.api import reasons
from coder_k8s.coderd import errors
from coder_k8s.coderd.types import ProxyReport, ProxyStatus, WorkspaceProxy
from coder_k8s.controllers.explanations import explain
from coder_k8s.controllers.report import Outcome, Report
from coder_k8s.controllers.workspaceproxy.outcomes import (
    ERRORS,
    HEALTHY,
    NOT_MANAGED,
    NOT_QUERIED,
    REGISTERED,
    health,
    name_taken,
    recheck_interval,
)
from coder_k8s.controllers.workspaceproxy.registration import NameConflict


def seen(status: str, *problems: str, warnings: list[str] | None = None, version: str = "") -> WorkspaceProxy:
    report = ProxyReport(errors=list(problems) or None, warnings=warnings)
    state = ProxyStatus(status=status, report=report)
    healthy = status == "ok"
    return WorkspaceProxy(
        id="a", name="sydney", display_name="", icon_url="", healthy=healthy, version=version, status=state
    )


@pytest.mark.parametrize(
    ("found", "replicas", "status", "reason", "message"),
    [
        (seen("ok"), 1, True, "ProxyHealthy", "Coder reaches the proxy"),
        (seen("ok", version="v2"), 1, True, "ProxyHealthy", "Coder reaches the proxy, which runs v2"),
        (seen("ok", warnings=["slow"]), 1, True, "ProxyHealthy", "Coder reaches the proxy; warning: slow"),
        (seen("unreachable"), 1, False, "ProxyUnreachable", "Coder cannot reach the proxy at its access URL"),
        (seen("unregistered"), 2, False, "ProxyUnregistered", "The proxy has not connected to Coder yet"),
        (
            seen("unhealthy", "one", "two", warnings=["three"]),
            1,
            False,
            "ProxyUnhealthy",
            "Coder reaches the proxy and reports it as unhealthy: one; two; warning: three",
        ),
        (seen(""), 1, None, "HealthUnknown", "Coder does not report the health of the proxy"),
        (seen("unregistered"), 0, False, "ScaledToZero", "Scaled to zero"),
    ],
)
def test_health(found: WorkspaceProxy, replicas: int, status: bool | None, reason: str, message: str) -> None:
    outcome = health(found, replicas, "")
    assert outcome[:4] == (HEALTHY, status, reason, message)
    assert (outcome.satisfied, outcome.stalled) == (True if replicas == 0 else None, False)


def test_health_without_the_token() -> None:
    found = health(seen("unhealthy", "cannot use a:secret", "secret is bad"), 1, "a:secret")
    assert found.message.endswith("cannot use [redacted]; [redacted] is bad")


@pytest.mark.parametrize(
    ("outcome", "ready", "stalled"),
    [
        (Outcome(REGISTERED, True, reasons.REGISTERED, "Registered as sydney"), True, False),
        (NOT_MANAGED.registered, True, False),
        (NOT_MANAGED.healthy, True, False),
        (NOT_QUERIED, None, False),
        (Outcome(HEALTHY, False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True), True, False),
        (Outcome(HEALTHY, False, reasons.PROXY_UNHEALTHY, "it is slow"), False, False),
        (Outcome(REGISTERED, False, reasons.NAME_TAKEN, "rename it", stalled=True), False, True),
    ],
)
def test_report_of_coderd_in_the_message(outcome: Outcome, ready: bool | None, stalled: bool) -> None:
    report = Report()
    report.add_outcome(outcome)
    assert [each[:4] for each in report.findings] == [outcome[:4]]
    summary = {each.type: each.status for each in report.conclude()[:3]}
    assert (summary["Ready"], summary["Stalled"]) == (ready, stalled)


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [
        (Outcome(HEALTHY, True, reasons.PROXY_HEALTHY), 60),
        (Outcome(HEALTHY, False, reasons.PROXY_UNHEALTHY), 10),
        (Outcome(HEALTHY, None, reasons.HEALTH_UNKNOWN), 10),
        (Outcome(HEALTHY, False, reasons.SCALED_TO_ZERO, satisfied=True), 60),
    ],
)
def test_unhealthy_proxy_is_checked_soon(outcome: Outcome, seconds: float) -> None:
    assert recheck_interval(outcome) == seconds


def test_what_is_always_reported() -> None:
    for outcome, condition in zip(NOT_MANAGED, (REGISTERED, HEALTHY), strict=True):
        assert (outcome.type, outcome.status, outcome.reason) == (condition, None, "NotManaged")
        assert "proxySessionTokenSecretRef" in outcome.message
    assert (NOT_QUERIED.type, NOT_QUERIED.status, NOT_QUERIED.reason) == (HEALTHY, None, "HealthUnknown")
    assert NOT_QUERIED.message


def test_missing_permission_is_named() -> None:
    user = "The user of the token in Secret s"
    message = explain(errors.Forbidden("no"), ERRORS, user=user).outcome.message
    assert message == "The user of the token in Secret s cannot manage workspace proxies; assign the role Owner: no"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            NameConflict("sydney", adoptable=True),
            "Coder already has a proxy named sydney that this object did not register; delete it in Coder, rename this "
            'object, or take it over with the annotation coder.com/adopt: "true"',
        ),
        (
            NameConflict("sydney", adoptable=True, in_use=True),
            "Coder already has a proxy named sydney that this object did not register, and that is running; delete it "
            'in Coder, rename this object, or stop it and take it over with the annotation coder.com/adopt: "true"',
        ),
        (
            NameConflict("sydney"),
            "Coder already has a proxy named sydney that this object did not register; delete it in Coder or rename "
            "this object",
        ),
        (
            NameConflict("sydney", claimed=True),
            "Coder already has a proxy named sydney that another CoderWorkspaceProxy claims; rename this object",
        ),
        (NameConflict("Primary"), "Coder reserves the proxy name Primary for itself; rename this object"),
    ],
)
def test_taken_name(found: NameConflict, expected: str) -> None:
    assert name_taken(found) == Outcome(REGISTERED, False, reasons.NAME_TAKEN, expected, stalled=True)
