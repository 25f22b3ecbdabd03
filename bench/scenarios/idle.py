"""Idle: an operator in steady state."""

import asyncio
from collections.abc import Sequence

import msgspec

from bench import samples
from bench.cluster import BenchCluster, bench_cluster, leads, planes, steady_state, writes
from bench.report import Section, Verdict, table
from tests.e2e.operator_process import OperatorProcess

SETTLING = 3.0


class Figures(msgspec.Struct, kw_only=True):
    number: int
    seconds: float
    writes: int
    """Write requests, except for the Lease."""
    leases: int
    requests: dict[str, int]
    cpu: float
    resident: float


async def run(number: int, seconds: float) -> Figures:
    async with bench_cluster() as here:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(number))
            await steady_state(operator, number)
            return await measure(here, operator, number, seconds)


async def measure(here: BenchCluster, operator: OperatorProcess, number: int, seconds: float) -> Figures:
    """Measure the requests and the resource usage during some seconds."""
    await asyncio.sleep(SETTLING)  # events and bookmarks of earlier changes
    requests, before = samples.requests(here.cluster), samples.usage(operator.pid)
    wrote, renewed = await writes(operator), await _leases(operator)
    await asyncio.sleep(seconds)
    after = samples.usage(operator.pid)
    return Figures(
        number=number,
        seconds=seconds,
        writes=await writes(operator) - wrote,
        leases=await _leases(operator) - renewed,
        requests=dict(samples.requests(here.cluster) - requests),
        cpu=after.cpu - before.cpu,
        resident=after.resident,
    )


async def _leases(operator: OperatorProcess) -> int:
    return int(await operator.count("rest_client_requests_total", method="PUT"))


def section(runs: Sequence[Figures]) -> Section:
    header = [
        "control planes",
        "seconds",
        "writes",
        "Lease per min",
        "other requests per min",
        "CPU ms per min",
        "RSS MB",
    ]
    rows = [
        (
            run.number,
            f"{run.seconds:g}",
            run.writes,
            f"{run.leases * 60 / run.seconds:.0f}",
            f"{sum(run.requests.values()) * 60 / run.seconds:.1f}",
            f"{run.cpu * 60000 / run.seconds:.0f}",
            f"{run.resident:.0f}",
        )
        for run in runs
    ]
    wrote = sum(run.writes for run in runs)
    text = "The cluster is in steady state. Each watch ends after 5 to 10 minutes and is started again.\n\n"
    verdict = Verdict(
        name="writes in steady state, except for the Lease",
        target="0",
        found=str(wrote),
        met=wrote == 0,
        limit="an object keeps changing.",
    )
    return Section(title="Idle", text=text + table(header, rows), verdicts=[verdict])
