"""The results of several runs, as a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from .run import SCALERS, Result, percentile, simulate
from .traces import Trace

COLUMNS = ("trace", "replicas by", "wait p50", "p95", "max", "pod-hours", "builds lost", "changes", "schedule delay")


class Row(NamedTuple):
    """One scaler with one trace, over all seeds."""

    trace: str
    scaler: str
    p50: float
    p95: float
    longest: float
    pod_hours: float
    """Mean of a run."""
    lost: int
    """In all runs."""
    never: int
    """Scheduled jobs of all runs that coderd did not create."""
    changes: float
    """Mean of a run."""
    late: float
    """The longest delay of a scheduled job until coderd created it."""

    def cells(self) -> tuple[str, ...]:
        delay = f"{self.late:.0f} s" if self.late else "-"
        waits = tuple(f"{value:.0f} s" for value in (self.p50, self.p95, self.longest))
        missed = f"{self.never} never" if self.never else delay
        return self.trace, self.scaler, *waits, f"{self.pod_hours:.1f}", str(self.lost), f"{self.changes:.0f}", missed


class Comparison(msgspec.Struct, frozen=True):
    """The rows of a trace, and one run of each scaler for a chart."""

    trace: Trace
    rows: tuple[Row, ...]
    samples: Mapping[str, Sequence[tuple[float, int, int]]]


def compare(name: str, make: Callable[[Random], Trace], seeds: int) -> Comparison:
    """Run a trace with every scaler; each seed has other jobs."""
    traces = [make(Random(f"{name} {seed}")) for seed in range(seeds)]  # noqa: S311 - the same in every run
    rows, samples = [], {}
    for scaler, build in SCALERS.items():
        results = [simulate(trace, build(trace), seed) for seed, trace in enumerate(traces)]
        rows.append(_row(name, scaler, results))
        samples[scaler] = results[0].samples
    return Comparison(traces[0], tuple(rows), samples)


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def _row(trace: str, scaler: str, results: Sequence[Result]) -> Row:
    waits = sorted(wait for result in results for wait in result.waits)
    return Row(
        trace,
        scaler,
        percentile(waits, 0.5),
        percentile(waits, 0.95),
        waits[-1] if waits else 0.0,
        sum(result.pod_hours for result in results) / len(results),
        sum(result.lost for result in results),
        sum(result.never for result in results),
        sum(result.changes for result in results) / len(results),
        max((result.late[-1] for result in results if result.late), default=0.0),
    )
