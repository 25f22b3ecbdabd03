"""Converge: many control planes at once, beside the least that anybody could do for them."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import samples
from bench.place import CHILDREN, MANY, CoderdTarget, leads, place, planes
from bench.report import Section, Verdict, table
from bench.svg import chart
from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.processes import Process
from coder_k8s.kube.objects import Key, Manifest

WORKERS = 8
"""As many as the operator has unless told otherwise."""
WALL_LIMIT, CPU_LIMIT, GROWTH_LIMIT = 1.15, 5.0, 1.5
BASE_MEMORY, MEMORY_EACH = 60.0, 0.025
REQUESTS = len(CHILDREN) + 1
"""What a control plane needs: each child is created, and the status is written once."""


class Spent(msgspec.Struct, kw_only=True):
    """What it took to bring all of them to rest."""

    wall: float
    """Seconds from the first create to the last status."""
    cpu: float
    """Seconds of whoever wrote the objects."""
    server_cpu: float
    """Seconds of the API server."""
    requests: dict[str, int]
    """By verb and resource, without those of the user."""
    idle: float
    """Megabytes before the first of them."""
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
        """Milliseconds of the operator for each."""
        return self.operator.cpu / self.number * 1000

    @property
    def requests(self) -> float:
        return writes(self.operator) / self.number

    @property
    def memory_limit(self) -> float:
        return BASE_MEMORY + MEMORY_EACH * self.number


async def run(number: int) -> Figures:
    async with place() as here:
        with here.operator() as operator:
            await leads(operator)
            spent = await measure(here, operator, planes(number))
        status = await _status(here)
    async with place() as here:
        with bare_loop(here, status) as loop:
            return Figures(number=number, operator=spent, floor=await measure(here, loop, planes(number)))


async def measure(here: CoderdTarget, writer: Process, wanted: list[Manifest]) -> Spent:
    """What a process spends that brings new control planes to rest."""
    server = here.cluster.apiserver.pid
    asked, before, server_before = samples.requests(here.cluster), samples.usage(writer.pid), samples.usage(server)
    began = time.monotonic()
    await here.converge(wanted)
    wall = time.monotonic() - began
    after, server_after = samples.usage(writer.pid), samples.usage(server)
    asked = samples.requests(here.cluster) - asked
    asked[f"POST {CONTROL_PLANE.plural}"] -= len(wanted)  # the user's
    await here.check_children(len(wanted))
    return Spent(
        wall=wall,
        cpu=after.cpu - before.cpu,
        server_cpu=server_after.cpu - server_before.cpu,
        requests=dict(+asked),
        idle=before.resident,
        peak=after.peak,
    )


def writes(spent: Spent) -> int:
    """Requests that could have changed something."""
    verbs = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
    return sum(count for name, count in spent.requests.items() if name.split()[0] in verbs)


@contextmanager
def bare_loop(here: CoderdTarget, status: Manifest) -> Iterator[Process]:
    """The floor, as a process of its own like the operator."""
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


async def _status(here: CoderdTarget) -> Manifest:
    """What the operator says of a control plane that it has just made."""
    manifest = await here.admin.get_manifest(CONTROL_PLANE, Key(MANY, "plane-0"))
    status: Manifest = manifest["status"]
    return status


def tell(runs: Sequence[Figures]) -> Section:
    header = [
        "control planes",
        "s",
        "per s",
        "floor, s",
        "of the floor",
        "CPU ms each",
        "floor",
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
    asked = ", ".join(f"{name} {count / most.number:.2f}" for name, count in sorted(most.operator.requests.items()))
    text = "\n\n".join(
        (
            "So many control planes are created at once, 16 at a time, until each has its ServiceAccount, Role, "
            "RoleBinding, Deployment and Service, and a status that says so. The floor is a loop with the same client "
            f"and as many workers ({WORKERS}), which writes the same objects and decides nothing.",
            table(header, rows),
            f"Requests per control plane with {most.number}, as the API server counts them: {asked}.",
        )
    )
    return Section(title="Converge", text=text, verdicts=_verdicts(runs), plots=_plots(runs))


def _growth(runs: Sequence[Figures], spent: Callable[[Figures], float]) -> float:
    """How much more is spent on each of many than on each of few."""
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
            name="wall time to converge, of the floor",
            target=f"≤ {WALL_LIMIT}",
            found=f"{ratio.ratio:.3f} (N = {ratio.number})",
            met=ratio.ratio <= WALL_LIMIT,
            limit=f"the operator shares the processors with the API server and takes {share:.0%} of what both use; "
            f"the floor takes {ratio.floor.cpu / ratio.operator.cpu:.0%} of the operator's part.",
        ),
        Verdict(
            name="writes per control plane",
            target=f"{REQUESTS}",
            found=f"{requests.requests:.2f} (N = {requests.number})",
            met=round(requests.requests, 1) == REQUESTS,
            limit="passes that were disturbed by a change on the way write their status again.",
        ),
        Verdict(
            name="operator CPU per control plane",
            target=f"< {CPU_LIMIT:g} ms",
            found=f"{cpu.cpu:.1f} ms (N = {cpu.number})",
            met=cpu.cpu < CPU_LIMIT,
            limit=f"{cpu.floor.cpu / cpu.number * 1000:.1f} ms are the HTTP client's, which the floor spends too.",
        ),
        Verdict(
            name=f"the same with {runs[-1].number}, of that with {runs[0].number}",
            target="flat (≤ 1.2)",
            found=f"{growth:.2f}",
            met=growth <= 1.2,
            limit=f"in the same run the CPU per control plane of the floor grew by the factor {floor:.2f}, "
            f"and that of the API server by {server:.2f}.",
        ),
        Verdict(
            name="peak memory",
            target=f"< {BASE_MEMORY:g} MB + {MEMORY_EACH * 1000:g} KB each",
            found=f"{memory.operator.peak:.0f} of {memory.memory_limit:.0f} MB (N = {memory.number})",
            met=memory.operator.peak < memory.memory_limit,
            limit=f"{memory.operator.idle:.0f} MB are Python and its libraries before the first object.",
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
                "floor": [(run.number, run.floor.wall) for run in runs],
            },
        ),
        "converge-cpu": chart(
            "CPU per control plane",
            "control planes",
            "ms",
            {
                "API server": [(run.number, run.operator.server_cpu / run.number * 1000) for run in runs],
                "operator": [(run.number, run.cpu) for run in runs],
                "floor": [(run.number, run.floor.cpu / run.number * 1000) for run in runs],
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
