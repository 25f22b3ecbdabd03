"""Whether builds take longer than the grace period of a pod.

A pod that gets a build at the very moment of its removal finishes it within `terminationGracePeriodSeconds`. A longer
build is lost, so users are warned.
"""

from collections.abc import Sequence
from datetime import timedelta

KEPT = 100
"""Builds that are remembered."""
FEWEST = 5
"""Builds that a warning needs."""
SHARE = 0.05


def outlive_pods(builds: Sequence[timedelta], grace: timedelta, before: bool) -> bool:
    """Whether too many builds take longer than the grace period; `before` is the last result.

    | builds that take longer | result |
    |---|---|
    | any, of fewer than 5 known ones | as before |
    | more than 5 % | yes |
    | 5 % or less | as before, so that the result does not change back and forth |
    | none | no |
    """
    if len(builds) < FEWEST:
        return before
    longer = sum(each > grace for each in builds)
    return longer > SHARE * len(builds) or (before and longer > 0)
