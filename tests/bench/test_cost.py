"""Limits for the resource usage of the operator that do not depend on the machine: a short version of `make bench`."""

import sys

import pytest

from bench import samples
from bench.cluster import CHILDREN, bench_cluster, leads, planes, steady_state
from bench.scenarios import converge, idle, restart

WARM_UP, FEW, MANY = 10, 50, 120
ALL = WARM_UP + FEW + MANY
GROWTH = 1.5
SECONDS = 10.0


@pytest.mark.timeout(400)
async def test_resource_usage(capfd: pytest.CaptureFixture[str]) -> None:
    async with bench_cluster() as here:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(WARM_UP))
            few = await converge.measure(here, operator, planes(FEW, first=WARM_UP))
        with here.operator() as operator:
            await leads(operator)
            await steady_state(operator, WARM_UP + FEW)
            many = await converge.measure(here, operator, planes(MANY, first=WARM_UP + FEW))
            await steady_state(operator, ALL)
            rest = await idle.measure(here, operator, MANY, SECONDS)
        again = await restart.measure(here, ALL)

    growth = (many.cpu / MANY) / (few.cpu / FEW)
    with capfd.disabled():
        sys.stderr.write(
            f"\n{MANY} control planes in {many.wall:.1f} s with {samples.writes(many.requests) / MANY:.2f} writes and "
            f"{many.cpu / MANY * 1000:.1f} ms of CPU each, {growth:.2f} times that of {FEW}; "
            f"at most {many.peak:.0f} MB\n"
            f"started with {ALL} control planes present: ready in {again.ready:.2f} s from exec\n"
            f"resident when idle: {few.idle:.0f} MB with {WARM_UP} control planes, {rest.resident:.0f} MB with {ALL}\n"
        )
    for number, spent in ((FEW, few), (MANY, many)):
        for kind in CHILDREN:
            assert spent.requests[f"POST {kind.plural}"] == number
        assert number <= spent.requests["PATCH codercontrolplanes/status"] < number * 1.05
        assert samples.writes(spent.requests) < (len(CHILDREN) + 1) * number * 1.02
    assert growth < GROWTH
    assert rest.writes == 0
    assert rest.leases > 0, "writes are counted"
    assert again.writes == 0
