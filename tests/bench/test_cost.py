"""Limits for the resource usage of the operator that do not depend on the machine: a short version of `make bench`."""

import sys

import pytest

from bench import samples
from bench.cluster import CHILDREN, bench_cluster, leads, planes, steady_state
from bench.scenarios import converge, idle, restart
from tests.support.campaign import slice_of

pytestmark = pytest.mark.slow

WARM_UP = 10
GROWTH = 1.5
COARSE = 50
"""The CPU time of fewer control planes is too short to be compared: it is counted in units of 10 ms."""
SECONDS = 10.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("few", "many"), slice_of([(10, 30), (COARSE, 120), (COARSE, 240)], 0))
async def test_resource_usage(few: int, many: int, capfd: pytest.CaptureFixture[str]) -> None:
    total = WARM_UP + few + many
    async with bench_cluster() as here:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(WARM_UP))
            first = await converge.measure(here, operator, planes(few, first=WARM_UP))
        with here.operator() as operator:
            await leads(operator)
            await steady_state(operator, WARM_UP + few)
            more = await converge.measure(here, operator, planes(many, first=WARM_UP + few))
            await steady_state(operator, total)
            rest = await idle.measure(here, operator, many, SECONDS)
        again = await restart.measure(here, total)

    growth = (more.cpu / many) / (first.cpu / few)
    with capfd.disabled():
        sys.stderr.write(
            f"\n{many} control planes in {more.wall:.1f} s with {samples.writes(more.requests) / many:.2f} writes and "
            f"{more.cpu / many * 1000:.1f} ms of CPU each, {growth:.2f} times that of {few}; "
            f"at most {more.peak:.0f} MB\n"
            f"started with {total} control planes present: ready in {again.ready:.2f} s from exec\n"
            f"idle: {first.idle:.0f} MB resident with {WARM_UP} control planes, {rest.resident:.0f} MB with {total}\n"
        )
    for number, spent in ((few, first), (many, more)):
        for kind in CHILDREN:
            assert spent.requests[f"POST {kind.plural}"] == number
        assert number <= spent.requests["PATCH codercontrolplanes/status"] < number * 1.05 + 1
        assert samples.writes(spent.requests) < (len(CHILDREN) + 1) * number * 1.02 + 1
    assert few < COARSE or growth < GROWTH
    assert rest.writes == 0
    assert rest.leases > 0, "writes are counted"
    assert again.writes == 0
