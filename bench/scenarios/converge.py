"""Converge: create many control planes at once, compared with a minimal baseline."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import samples
from bench.cluster import CHILDREN, MANY, BenchCluster, bench_cluster, leads, planes
from bench.report import Section, Verdict, table
from bench.svg import chart
from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.processes import Process
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually

WORKERS = 8
"""Of the operator and of the baseline."""
WALL_LIMIT, CPU_LIMIT, GROWTH_LIMIT = 1.15, 5.0, 1.5
BASE_MEMORY, MEMORY_EACH = 60.0, 0.025
REQUESTS = len(CHILDREN) + 1
"""Writes per control plane: each child is created, and the status is written once."""


class Spent(msgspec.Struct, kw_only=True):
    """Cost until all control planes are in steady state."""

    wall: float
    """Seconds from the first create to the last status."""
    cpu: float
    """CPU seconds of the operator or the baseline."""
    server_cpu: float
    """CPU seconds of the API server."""
    requests: dict[str, int]
    """Requests by verb and resource, without those of the user."""
    idle: float
    """Megabytes before the first control plane."""
    peak: float


class Figures(msgspec.Struct, kw_only=True):
    number: int
    operator: Spent
    floor: Spent

    @property
    def ratio(self) -> float:
        return self.operator.wall / self.floor.wall

    @property
    def cpu(self) -> float:
        """CPU milliseconds of the operator per control plane."""
        return self.operator.cpu / self.number * 1000

    @property
    def requests(self) -> float:
        return samples.writes(self.operator.requests) / self.number

    @property
    def memory_limit(self) -> float:
        return BASE_MEMORY + MEMORY_EACH * self.number


async def run(number: int) -> Figures:
    async with bench_cluster() as here:
        with here.operator(f"--workers={WORKERS}") as operator:
            await leads(operator)
            spent = await measure(here, operator, planes(number))
        status = await _status(here)
    async with bench_cluster() as here:
        with bare_loop(here, status) as loop:
            return Figures(number=number, operator=spent, floor=await measure(here, loop, planes(number)))


async def measure(here: BenchCluster, writer: Process, wanted: list[Manifest]) -> Spent:
    """Measure the cost of a process until new control planes are in steady state."""
    server = here.cluster.apiserver.pid
    requests_before = samples.requests(here.cluster)
    before, server_before = samples.usage(writer.pid), samples.usage(server)
    began = time.monotonic()
    await here.converge(wanted)
    wall = time.monotonic() - began
    after, server_after = samples.usage(writer.pid), samples.usage(server)

    def counted() -> samples.Requests | None:
        """The API server counts a request after its response, so the last one may be missing at first."""
        found = samples.requests(here.cluster) - requests_before
        return found if found[f"PATCH {CONTROL_PLANE.plural}/status"] >= len(wanted) else None

    requests = await eventually(counted, 10)
    assert requests is not None  # noqa: S101
    requests[f"POST {CONTROL_PLANE.plural}"] -= len(wanted)  # created by the user
    await here.check_children(len(wanted))
    return Spent(
        wall=wall,
        cpu=after.cpu - before.cpu,
        server_cpu=server_after.cpu - server_before.cpu,
        requests=dict(+requests),
        idle=before.resident,
        peak=after.peak,
    )


@contextmanager
def bare_loop(here: BenchCluster, status: Manifest) -> Iterator[Process]:
    """Run the baseline as a separate process, like the operator."""
    file, log = here.folder / "status.json", here.folder / "floor.log"
    file.write_bytes(msgspec.json.encode(status))
    command: list[str | Path] = [sys.executable, "-m", "bench.floor", here.kubeconfig, str(WORKERS), file]
    loop = Process(command, log, lambda: "ready" in log.read_text())
    loop.start()
    try:
        loop.wait_ready()
        yield loop
    finally:
        loop.kill()


async def _status(here: BenchCluster) -> Manifest:
    """Return the status that the operator writes for a new control plane."""
    manifest = await here.admin.get_manifest(CONTROL_PLANE, Key(MANY, "plane-0"))
    status: Manifest = manifest["status"]
    return status


def section(runs: Sequence[Figures]) -> Section:
    header = [
        "control planes",
        "s",
        "per s",
        "baseline, s",
        "ratio",
        "CPU ms each",
        "baseline",
        "API server",
        "RSS MB",
    ]
    rows = [
        (
            run.number,
            f"{run.operator.wall:.1f}",
            f"{run.number / run.operator.wall:.0f}",
            f"{run.floor.wall:.1f}",
            f"{run.ratio:.2f}",
            f"{run.cpu:.1f}",
            f"{run.floor.cpu / run.number * 1000:.1f}",
            f"{run.operator.server_cpu / run.number * 1000:.1f}",
            f"{run.operator.peak:.0f}",
        )
        for run in runs
    ]
    most = runs[-1]
    requests = ", ".join(f"{name} {count / most.number:.2f}" for name, count in sorted(most.operator.requests.items()))
    text = "\n\n".join(
        (
            "Creates this number of control planes, 16 at a time, and waits until each has its ServiceAccount, Role, "
            "RoleBinding, Deployment and Service, and its status. The baseline is a loop with the same client and "
            f"number of workers ({WORKERS}) that only writes the same objects.",
            table(header, rows),
            f"Requests per control plane with {most.number}, as counted by the API server: {requests}.",
        )
    )
    return Section(title="Converge", text=text, verdicts=_verdicts(runs), plots=_plots(runs))


def _growth(runs: Sequence[Figures], spent: Callable[[Figures], float]) -> float:
    """Return the growth of the cost per control plane from the smallest to the largest run."""
    few, many = runs[0], runs[-1]
    return spent(many) / many.number / (spent(few) / few.number)


def _verdicts(runs: Sequence[Figures]) -> list[Verdict]:
    ratio = max(runs, key=lambda run: run.ratio)
    cpu = max(runs, key=lambda run: run.cpu)
    requests = max(runs, key=lambda run: run.requests)
    memory = max(runs, key=lambda run: run.operator.peak / run.memory_limit)
    growth = _growth(runs, lambda run: run.operator.cpu)
    floor, server = _growth(runs, lambda run: run.floor.cpu), _growth(runs, lambda run: run.operator.server_cpu)
    share = ratio.operator.cpu / (ratio.operator.cpu + ratio.operator.server_cpu)
    return [
        Verdict(
            name="wall time to converge, relative to the baseline",
            target=f"≤ {WALL_LIMIT}",
            found=f"{ratio.ratio:.3f} (N = {ratio.number})",
            met=ratio.ratio <= WALL_LIMIT,
            limit=f"the operator shares the CPU with the API server and uses {share:.0%} of their total; "
            f"the baseline uses {ratio.floor.cpu / ratio.operator.cpu:.0%} of the operator's CPU time.",
        ),
        Verdict(
            name="writes per control plane",
            target=f"{REQUESTS}",
            found=f"{requests.requests:.2f} (N = {requests.number})",
            met=round(requests.requests, 1) == REQUESTS,
            limit="reconciles that are interrupted by a change write the status again.",
        ),
        Verdict(
            name="operator CPU per control plane",
            target=f"< {CPU_LIMIT:g} ms",
            found=f"{cpu.cpu:.1f} ms (N = {cpu.number})",
            met=cpu.cpu < CPU_LIMIT,
            limit=f"{cpu.floor.cpu / cpu.number * 1000:.1f} ms are spent in the HTTP client, also by the baseline.",
        ),
        Verdict(
            name=f"the same with {runs[-1].number}, relative to {runs[0].number}",
            target="flat (≤ 1.2)",
            found=f"{growth:.2f}",
            met=growth <= 1.2,
            limit=f"in the same run, CPU per control plane grew by a factor of {floor:.2f} for the baseline and "
            f"{server:.2f} for the API server.",
        ),
        Verdict(
            name="peak memory",
            target=f"< {BASE_MEMORY:g} MB + {MEMORY_EACH * 1000:g} KB each",
            found=f"{memory.operator.peak:.0f} of {memory.memory_limit:.0f} MB (N = {memory.number})",
            met=memory.operator.peak < memory.memory_limit,
            limit=f"{memory.operator.idle:.0f} MB are used by Python and its libraries before the first object.",
        ),
    ]


def _plots(runs: Sequence[Figures]) -> dict[str, str]:
    return {
        "converge-wall": chart(
            "Time to converge",
            "control planes",
            "s",
            {
                "operator": [(run.number, run.operator.wall) for run in runs],
                "baseline": [(run.number, run.floor.wall) for run in runs],
            },
        ),
        "converge-cpu": chart(
            "CPU per control plane",
            "control planes",
            "ms",
            {
                "API server": [(run.number, run.operator.server_cpu / run.number * 1000) for run in runs],
                "operator": [(run.number, run.cpu) for run in runs],
                "baseline": [(run.number, run.floor.cpu / run.number * 1000) for run in runs],
                "target": [(run.number, CPU_LIMIT) for run in runs],
            },
            dashed=["target"],
        ),
        "converge-memory": chart(
            "Peak resident memory of the operator",
            "control planes",
            "MB",
            {
                "operator": [(run.number, run.operator.peak) for run in runs],
                "target": [(run.number, run.memory_limit) for run in runs],
            },
            dashed=["target"],
        ),
    }
