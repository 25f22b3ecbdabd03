"""Limits for the resource usage of the operator that do not depend on the machine: a short version of `make bench`."""

import sys

import pytest

from bench import samples
from bench.cluster import CHILDREN, bench_cluster, leads, planes, steady_state
from bench.scenarios import converge, idle, restart
from tests.support.campaign import slice_of

pytestmark = pytest.mark.slow

WARM_UP, FEW = 10, 50
GROWTH = 1.5
SECONDS = 10.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("many", slice_of([120, 240], 0))
async def test_resource_usage(many: int, capfd: pytest.CaptureFixture[str]) -> None:
    total = WARM_UP + FEW + many
    async with bench_cluster() as here:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(WARM_UP))
            few = await converge.measure(here, operator, planes(FEW, first=WARM_UP))
        with here.operator() as operator:
            await leads(operator)
            await steady_state(operator, WARM_UP + FEW)
            more = await converge.measure(here, operator, planes(many, first=WARM_UP + FEW))
            await steady_state(operator, total)
            rest = await idle.measure(here, operator, many, SECONDS)
        again = await restart.measure(here, total)

    growth = (more.cpu / many) / (few.cpu / FEW)
    with capfd.disabled():
        sys.stderr.write(
            f"\n{many} control planes in {more.wall:.1f} s with {samples.writes(more.requests) / many:.2f} writes and "
            f"{more.cpu / many * 1000:.1f} ms of CPU each, {growth:.2f} times that of {FEW}; "
            f"at most {more.peak:.0f} MB\n"
            f"started with {total} control planes present: ready in {again.ready:.2f} s from exec\n"
            f"idle: {few.idle:.0f} MB resident with {WARM_UP} control planes, {rest.resident:.0f} MB with {total}\n"
        )
    for number, spent in ((FEW, few), (many, more)):
        for kind in CHILDREN:
            assert spent.requests[f"POST {kind.plural}"] == number
        assert number <= spent.requests["PATCH codercontrolplanes/status"] < number * 1.05
        assert samples.writes(spent.requests) < (len(CHILDREN) + 1) * number * 1.02
    assert growth < GROWTH
    assert rest.writes == 0
    assert rest.leases > 0, "writes are counted"
    assert again.writes == 0
