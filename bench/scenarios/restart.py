"""Restart: an operator that starts in a cluster in steady state."""

import time
from collections.abc import Sequence

import msgspec

from bench import samples
from bench.cluster import BenchCluster, bench_cluster, leads, planes, steady_state, writes
from bench.report import Section, Verdict, table
from tests.support import eventually

DRY_RUNS = 1
"""Each process checks the fields of the status with one dry run per kind; here, one kind has objects."""


class Figures(msgspec.Struct, kw_only=True):
    number: int
    ready: float
    """Seconds from exec until `/readyz` succeeds."""
    rest: float
    """Seconds from exec until all were reconciled."""
    cpu: float
    """CPU seconds until all were reconciled."""
    writes: int
    """Write requests, except for the Lease."""
    requests: dict[str, int]
    resident: float


async def run(number: int) -> Figures:
    async with bench_cluster() as here:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(number))
        return await measure(here, number)


async def measure(here: BenchCluster, number: int) -> Figures:
    """Start an operator with this number of control planes present, and measure it."""
    requests = samples.requests(here.cluster)
    began = time.monotonic()
    with here.operator() as operator:
        await eventually(operator.is_ready, 60)
        ready = time.monotonic() - began
        await steady_state(operator, number)
        rest = time.monotonic() - began
        used = samples.usage(operator.pid)
        return Figures(
            number=number,
            ready=ready,
            rest=rest,
            cpu=used.cpu,
            writes=await writes(operator) - DRY_RUNS,
            requests=dict(samples.requests(here.cluster) - requests),
            resident=used.resident,
        )


def section(runs: Sequence[Figures]) -> Section:
    header = ["control planes", "ready after, s", "all reconciled, s", "CPU, s", "requests", "writes", "RSS MB"]
    rows = [
        (
            run.number,
            f"{run.ready:.2f}",
            f"{run.rest:.2f}",
            f"{run.cpu:.2f}",
            sum(run.requests.values()),
            run.writes,
            f"{run.resident:.0f}",
        )
        for run in runs
    ]
    most = max(runs, key=lambda run: run.writes)
    text = "Starts an operator in a cluster in steady state. Times are measured from exec.\n\n" + table(header, rows)
    verdict = Verdict(
        name="writes after a restart",
        target="0",
        found=f"{most.writes}" + (f" (N = {most.number})" if most.writes else ""),
        met=most.writes == 0,
        limit="an object differs from its desired state.",
    )
    return Section(title="Restart", text=text, verdicts=[verdict])
