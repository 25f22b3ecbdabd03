"""The summary follows from what the steps said."""

from collections.abc import Callable
from typing import Any

import pytest

from coder_k8s.controllers.report import Report
from coder_k8s.kube.conditions import Finding

SETTLED = {"Ready": (True, "AllPartsReady"), "Reconciling": (False, "Settled"), "Stalled": (False, "Settled")}


def summary(report: Report) -> dict[str, tuple[bool | None, str]]:
    return {finding.type: (finding.holds, finding.reason) for finding in report.conclude()[:3]}


def of(*steps: Callable[[Report], None]) -> Report:
    report = Report()
    for step in steps:
        step(report)
    return report


def add(*args: Any, **options: Any) -> Callable[[Report], None]:
    return lambda report: report.add(*args, **options)


def stall(reason: str) -> Callable[[Report], None]:
    return lambda report: report.stall(reason, "do something")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([], SETTLED, id="nothing to wait for"),
        pytest.param([add("Available", True, "Serving")], SETTLED, id="all hold"),
        pytest.param([add("Access", False, "Disabled", settled=True)], SETTLED, id="false and meant so"),
        pytest.param([add("License", None, "NotConfigured", settled=True)], SETTLED, id="unknown and meant so"),
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
            [add("Available", True, "RolloutInProgress", settled=False)],
            {
                "Ready": (False, "RolloutInProgress"),
                "Reconciling": (True, "RolloutInProgress"),
                "Stalled": (False, "Progressing"),
            },
            id="holds, but not for this generation",
        ),
        pytest.param(
            [add("Available", False, "NoReplicasReady", moving=False)],
            {
                "Ready": (False, "NoReplicasReady"),
                "Reconciling": (False, "NoReplicasReady"),
                "Stalled": (False, "Progressing"),
            },
            id="nobody works on it",
        ),
        pytest.param(
            [add("Available", False, "NoReplicasReady", moving=False), add("Access", False, "Pending")],
            {
                "Ready": (False, "NoReplicasReady"),
                "Reconciling": (True, "NoReplicasReady"),
                "Stalled": (False, "Progressing"),
            },
            id="the first one open speaks, any one moves",
        ),
        pytest.param(
            [add("Available", False, "NoReplicasReady"), add("License", False, "Invalid", "refused", stalled=True)],
            {"Ready": (False, "Invalid"), "Reconciling": (False, "Stalled"), "Stalled": (True, "Invalid")},
            id="who needs a human speaks first",
        ),
        pytest.param(
            [stall("NameTaken"), add("License", False, "Invalid", stalled=True)],
            {"Ready": (False, "NameTaken"), "Reconciling": (False, "Stalled"), "Stalled": (True, "NameTaken")},
            id="the first culprit is named",
        ),
    ],
)
def test_summary(steps: list[Callable[[Report], None]], expected: dict[str, Any]) -> None:
    assert summary(of(*steps)) == expected


def test_every_finding_is_told_behind_the_summary_in_order() -> None:
    report = of(add("Available", True, "Serving", "1 of 1"), add("Exposed", True, "Applied"))
    assert report.conclude()[3:] == [
        Finding("Available", True, "Serving", "1 of 1"),
        Finding("Exposed", True, "Applied"),
    ]


def test_the_summary_carries_the_message_of_the_culprit() -> None:
    report = of(add("License", False, "Invalid", "coderd refused it", stalled=True))
    assert [finding.message for finding in report.conclude() if finding.type in ("Ready", "Stalled")] == [
        "coderd refused it",
        "coderd refused it",
    ]


def test_the_shortest_wish_wins() -> None:
    report = Report()
    assert report.look_again is None
    for seconds in (30.0, 10.0, 60.0):
        report.again(seconds)
    assert report.look_again == 10.0
