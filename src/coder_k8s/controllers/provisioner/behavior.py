"""How fast a number of pods may change, with the semantics of `behavior` in `autoscaling/v2`.

A stabilization window considers past recommendations: the number goes up to the lowest of its window, and down to the
highest. A policy limits the change within its period, relative to the number of pods at the start of that period.
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from coder_k8s.api.autoscaling import ScalingBehavior, ScalingPolicy, ScalingRules


class Recommendation(msgspec.Struct, frozen=True):
    """The number of pods that was recommended at a time."""

    at: datetime
    replicas: int


class Change(msgspec.Struct, frozen=True):
    """A change of the number of pods, negative if there were fewer afterwards."""

    at: datetime
    pods: int


class History(NamedTuple):
    """Recommendations and changes as far back as windows and periods need them."""

    recommendations: tuple[Recommendation, ...] = ()
    changes: tuple[Change, ...] = ()

    @classmethod
    def started(cls, replicas: int, now: datetime) -> "History":
        """The history of an operator that just started: the number of pods counts as recommended for one window."""
        return cls((Recommendation(now, replicas),))

    def recommend(self, replicas: int, behavior: ScalingBehavior, now: datetime) -> "History":
        """The history with another recommendation, and without what no window and no period needs.

        Of equal recommendations in a row only the last one is kept: it is the last to leave a window.
        """
        window = max(_window(behavior.scale_up), _window(behavior.scale_down))
        period = timedelta(seconds=max(_periods(behavior), default=0))
        known = self.recommendations
        if known and known[-1].replicas == replicas:
            known = known[:-1]
        kept = tuple(each for each in known if each.at > now - window)
        changes = tuple(each for each in self.changes if each.at > now - period)
        return History((*kept, Recommendation(now, replicas)), changes)

    def change(self, pods: int, now: datetime) -> "History":
        """The history with another change of the number of pods."""
        return self._replace(changes=(*self.changes, Change(now, pods))) if pods else self


def stabilize(current: int, recommended: int, behavior: ScalingBehavior, history: History, now: datetime) -> int:
    """The number of pods that all recommendations of the windows agree on."""
    up = _within(history, behavior.scale_up, now)
    down = _within(history, behavior.scale_down, now)
    lowest, highest = min([*up, recommended]), max([*down, recommended])
    return min(max(current, lowest), highest)


def limit(current: int, desired: int, behavior: ScalingBehavior, history: History, now: datetime) -> int:
    """The number of pods, as close to the desired one as the policies allow."""
    if desired > current:
        return min(desired, max(current, _limit_up(current, behavior.scale_up, history, now)))
    if desired < current:
        return max(desired, min(current, _limit_down(current, behavior.scale_down, history, now)))
    return current


def _limit_up(current: int, rules: ScalingRules, history: History, now: datetime) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(current, policy, history, now)
        percent = math.ceil(start * (100 + policy.value) / 100)
        limits.append(percent if policy.type == "Percent" else start + policy.value)
    return min(limits) if rules.select_policy == "Min" else max(limits)


def _limit_down(current: int, rules: ScalingRules, history: History, now: datetime) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(current, policy, history, now)
        percent = start * (100 - policy.value) // 100
        limits.append(percent if policy.type == "Percent" else start - policy.value)
    return max(limits) if rules.select_policy == "Min" else min(limits)


def _at_start(current: int, policy: ScalingPolicy, history: History, now: datetime) -> int:
    """The number of pods at the start of a policy's period."""
    begin = now - timedelta(seconds=policy.period_seconds)
    return current - sum(change.pods for change in history.changes if change.at > begin)


def _within(history: History, rules: ScalingRules, now: datetime) -> list[int]:
    begin = now - _window(rules)
    return [each.replicas for each in history.recommendations if each.at > begin]


def _window(rules: ScalingRules) -> timedelta:
    return timedelta(seconds=rules.stabilization_window_seconds)


def _periods(behavior: ScalingBehavior) -> Iterable[int]:
    return (policy.period_seconds for rules in (behavior.scale_up, behavior.scale_down) for policy in rules.policies)
