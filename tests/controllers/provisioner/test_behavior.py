"""Stabilization windows and policies as in `autoscaling/v2`."""

from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.api.autoscaling import ScaleDownRules, ScaleUpRules, ScalingBehavior, ScalingPolicy
from coder_k8s.controllers.provisioner.behavior import Change, History, Recommendation, limit, stabilize

NOW = datetime(2026, 11, 17, 9, tzinfo=UTC)
DEFAULT = ScalingBehavior()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def recommended(*each: tuple[float, int]) -> History:
    return History(tuple(Recommendation(ago(seconds), replicas) for seconds, replicas in each))


def changed(*each: tuple[float, int]) -> History:
    return History(changes=tuple(Change(ago(seconds), pods) for seconds, pods in each))


def policy(type_: str, value: int, period: int = 60) -> ScalingPolicy:
    return ScalingPolicy(type=type_, value=value, period_seconds=period)


def up(*policies: ScalingPolicy, select: str = "Max", window: int = 0) -> ScalingBehavior:
    rules = ScaleUpRules(policies=list(policies), select_policy=select, stabilization_window_seconds=window)
    return ScalingBehavior(scale_up=rules)


def down(*policies: ScalingPolicy, select: str = "Max", window: int = 300) -> ScalingBehavior:
    rules = ScaleDownRules(policies=list(policies), select_policy=select, stabilization_window_seconds=window)
    return ScalingBehavior(scale_down=rules)


@pytest.mark.parametrize(
    ("current", "now", "history", "behavior", "expected"),
    [
        (5, 9, recommended(), DEFAULT, 9),
        (5, 2, recommended(), DEFAULT, 2),
        (5, 2, recommended((299, 5)), DEFAULT, 5),
        (5, 2, recommended((300, 5)), DEFAULT, 2),
        (5, 2, recommended((299, 3), (100, 4)), DEFAULT, 4),
        (5, 2, recommended((10, 9)), DEFAULT, 5),
        (5, 9, recommended((30, 6)), up(policy("Pods", 4), window=60), 6),
        (5, 9, recommended((30, 3)), up(policy("Pods", 4), window=60), 5),
        (5, 9, recommended((61, 3)), up(policy("Pods", 4), window=60), 9),
    ],
)
def test_a_window_considers_past_recommendations(
    current: int, now: int, history: History, behavior: ScalingBehavior, expected: int
) -> None:
    assert stabilize(current, now, behavior, history, NOW) == expected


@pytest.mark.parametrize(
    ("current", "desired", "history", "behavior", "expected"),
    [
        (0, 500, changed(), DEFAULT, 100),
        (8, 500, changed(), DEFAULT, 108),
        (300, 990, changed(), DEFAULT, 600),
        (118, 500, changed((9, 100)), DEFAULT, 118),
        (118, 500, changed((10, 100)), DEFAULT, 236),
        (10, 0, changed(), DEFAULT, 0),
        (10, 20, changed(), up(policy("Pods", 4)), 14),
        (10, 20, changed((30, 3)), up(policy("Pods", 4)), 11),
        (10, 20, changed((30, -3)), up(policy("Pods", 4)), 17),
        (10, 40, changed((30, 9)), up(policy("Percent", 50)), 10),
        (10, 40, changed(), up(policy("Percent", 50), policy("Pods", 9), select="Min"), 15),
        (10, 40, changed(), up(policy("Pods", 9), select="Disabled"), 10),
        (3, 9, changed(), up(policy("Percent", 50)), 5),
        (10, 1, changed(), down(policy("Pods", 4)), 6),
        (6, 1, changed((30, -4)), down(policy("Pods", 4)), 6),
        (10, 1, changed(), down(policy("Percent", 25)), 7),
        (10, 1, changed(), down(policy("Percent", 25), policy("Pods", 1), select="Min"), 9),
        (10, 1, changed(), down(policy("Percent", 25), select="Disabled"), 10),
        (10, 10, changed((1, 5)), DEFAULT, 10),
    ],
)
def test_policies_limit_the_change_within_their_period(
    current: int, desired: int, history: History, behavior: ScalingBehavior, expected: int
) -> None:
    assert limit(current, desired, behavior, history, NOW) == expected


def test_the_history_keeps_what_windows_and_periods_need() -> None:
    history = History.started(7, ago(299)).change(2, ago(14)).change(0, ago(14)).change(1, ago(16))
    assert history.recommend(3, DEFAULT, NOW) == History(
        (Recommendation(ago(299), 7), Recommendation(NOW, 3)), (Change(ago(14), 2),)
    )
    assert History.started(7, ago(300)).recommend(3, DEFAULT, NOW).recommendations == (Recommendation(NOW, 3),)
