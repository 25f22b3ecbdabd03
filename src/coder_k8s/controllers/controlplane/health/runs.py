"""When a report of coderd's health check changes the condition.

Each replica of coderd keeps the report of its own last run, identified by its time, for about ten minutes. Two requests
may be answered by different replicas, and one bad run may be a coincidence. So a report is accepted as follows:

| the report is                    | it is accepted                                                      |
|----------------------------------|---------------------------------------------------------------------|
| the first one, without an error  | immediately                                                         |
| less severe than the known one   | immediately                                                         |
| equally severe, other codes      | if enough runs in a row had the same codes                          |
| more severe, or a first error    | if enough runs in a row were equally severe                         |

Enough are two different runs. If there are several replicas, and results changed back and forth, the replicas seem to
disagree, and more runs are needed:

| how often a result changed back | runs |
|---------------------------------|------|
| never, or only one replica      | 2    |
| once                            | 4    |
| more often                      | 12   |

This is reset by as many runs in a row with the same result. What was seen is held in memory. After a restart, an error
is accepted one run later; the known report is in the status.
"""

from typing import NamedTuple

from .codes import Severity

NEEDED = (2, 4, 12)
"""Runs in a row, by how often results changed back."""
KEPT = 16


class Result(NamedTuple):
    """What two reports are compared by."""

    severity: Severity
    codes: tuple[str, ...] = ()


class Runs(NamedTuple):
    """The runs of one control plane that were seen."""

    last: Result | None = None
    same: tuple[str, ...] = ()
    """Different runs in a row with this result."""
    as_severe: tuple[str, ...] = ()
    """Different runs in a row with this severity."""
    earlier: tuple[Result, ...] = ()
    """Results before this one."""
    returns: int = 0
    """How often a result changed back."""

    def needed(self, replicas: int) -> int:
        """How many runs in a row change the condition for the worse."""
        return NEEDED[min(self.returns, len(NEEDED) - 1) if replicas > 1 else 0]


def observe(runs: Runs, run: str, result: Result) -> Runs:
    """Add a report to what was seen. A run that was seen before may have another result, if the spec changed."""
    last = runs.last
    if last is None:
        return Runs(result, (run,), (run,))
    severe = _with(runs.as_severe, run) if result.severity == last.severity else (run,)
    if result == last:
        same = _with(runs.same, run)
        agreed = len(same) >= NEEDED[-1]
        return runs._replace(
            same=same,
            as_severe=severe,
            returns=0 if agreed else runs.returns,
            earlier=() if agreed else runs.earlier,
        )
    returned = result in runs.earlier and result.severity <= last.severity
    earlier = (*(each for each in runs.earlier if each != last), last)[-KEPT:]
    return Runs(result, (run,), severe, earlier, runs.returns + returned)


def accepts(runs: Runs, known: Result | None, replicas: int) -> bool:
    """Whether the report that was just observed becomes the known one."""
    result = runs.last
    if result is None:
        return False
    if known is None and result.severity < Severity.ERROR:
        return True
    if known is not None and (result == known or result.severity < known.severity):
        return True
    equal = known is not None and result.severity == known.severity
    return len(runs.same if equal else runs.as_severe) >= runs.needed(replicas)


def _with(runs: tuple[str, ...], run: str) -> tuple[str, ...]:
    return runs if run in runs else (*runs, run)[-KEPT:]
