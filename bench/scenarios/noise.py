"""Noise: thousands of unrelated Secrets and ConfigMaps that change continuously."""

import asyncio
import base64
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench import samples
from bench.cluster import MANY, BenchCluster, at_rate, bench_cluster, leads, planes, steady_state
from bench.report import Section, Verdict, table
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET
from coder_k8s.kube.objects import Key

EACH = 5000
SIZE = 20_000
CHURN = 50.0
"""Unrelated changes per second."""
REST = 30.0
LIMIT = 1.10


class Cost(msgspec.Struct, kw_only=True):
    cpu: float
    """Seconds from exec until all control planes were created."""
    rest_cpu: float
    """Milliseconds per minute afterwards."""
    resident: float


class Figures(msgspec.Struct, kw_only=True):
    number: int
    unrelated: int
    quiet: Cost
    noisy: Cost

    @property
    def memory(self) -> float:
        return self.noisy.resident / self.quiet.resident

    @property
    def cpu(self) -> float:
        return self.noisy.cpu / self.quiet.cpu


async def run(number: int, each: int = EACH, rest: float = REST) -> Figures:
    async with bench_cluster() as here:
        quiet = await measure(here, number, rest)
    async with bench_cluster() as here, noise(here, each):
        return Figures(number=number, unrelated=2 * each, quiet=quiet, noisy=await measure(here, number, rest))


async def measure(here: BenchCluster, number: int, rest: float) -> Cost:
    with here.operator() as operator:
        await leads(operator)
        await here.converge(planes(number))
        await steady_state(operator, number)
        made = samples.usage(operator.pid)
        await asyncio.sleep(rest)
        rested = samples.usage(operator.pid)
        return Cost(cpu=made.cpu, rest_cpu=(rested.cpu - made.cpu) * 60_000 / rest, resident=rested.resident)


@asynccontextmanager
async def noise(here: BenchCluster, each: int) -> AsyncIterator[None]:
    """Create unrelated objects, and keep changing some of them until the context ends."""
    blob = base64.b64encode(os.urandom(SIZE * 3 // 4)).decode()
    names = [{"metadata": {"namespace": MANY, "name": f"unrelated-{count}"}} for count in range(each)]
    await here.make(SECRET, ({**name, "data": {"blob": blob}} for name in names))
    await here.make(CONFIG_MAP, ({**name, "data": {"some": "thing"}} for name in names))
    turns = itertools.count()

    async def change() -> None:
        turn = next(turns)
        kind, key = (SECRET, CONFIG_MAP)[turn % 2], Key(MANY, f"unrelated-{turn % each}")
        await here.admin.merge(kind, key, {"metadata": {"annotations": {"turn": str(turn)}}})

    churn = asyncio.create_task(at_rate(CHURN, change))
    try:
        yield
    finally:
        churn.cancel()
        await asyncio.wait([churn])
    if not churn.cancelled():
        churn.result()


def _each_change(run: Figures) -> float:
    """CPU milliseconds for a change of an unrelated object."""
    return (run.noisy.rest_cpu - run.quiet.rest_cpu) / 60 / CHURN


def section(runs: Sequence[Figures]) -> Section:
    header = [
        "control planes",
        "cluster",
        "CPU from exec until created, s",
        "CPU in steady state, ms per min",
        "RSS MB",
    ]
    rows = [
        (run.number, name, f"{cost.cpu:.2f}", f"{cost.rest_cpu:.0f}", f"{cost.resident:.1f}")
        for run in runs
        for name, cost in (("alone", run.quiet), (f"with {run.unrelated} unrelated objects", run.noisy))
    ]
    memory, cpu = max(runs, key=lambda run: run.memory), max(runs, key=lambda run: run.cpu)
    text = (
        f"Half of the unrelated objects are Secrets of {SIZE // 1000} KB, half are ConfigMaps, and {CHURN:g} of them "
        "change per second. The operator watches the metadata of all of them, as a control plane can reference any.\n\n"
    )
    each = (memory.noisy.resident - memory.quiet.resident) * 1e6 / memory.unrelated
    verdicts = [
        Verdict(
            name="memory with unrelated objects, relative to without",
            target=f"≤ {LIMIT}",
            found=f"{memory.memory:.2f} (N = {memory.number})",
            met=memory.memory <= LIMIT,
            limit=f"name and version of each unrelated object: {each:.0f} bytes.",
        ),
        Verdict(
            name="CPU with unrelated objects, relative to without",
            target=f"≤ {LIMIT}",
            found=f"{cpu.cpu:.2f} (N = {cpu.number})",
            met=cpu.cpu <= LIMIT,
            limit="the initial list and every change are JSON, which must be decoded before it is dropped: "
            f"{cpu.noisy.cpu - cpu.quiet.cpu:.2f} s in total, and {_each_change(cpu):.2f} ms for each change.",
        ),
    ]
    return Section(title="Noise", text=text + table(header, rows), verdicts=verdicts)
