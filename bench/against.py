"""Compares this operator with another one. Both run in turn, each on a new cluster, with the same control planes.

Only the API server and the process are observed, so the other operator needs no metrics: it has settled when every
control plane has its status, Deployment and Service, and when it neither writes nor uses the CPU.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.processes import Process, ProcessFailed, tail
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE
from coder_k8s.kube.objects import Kind, Object

from . import samples
from .candidates import Candidate
from .cluster import TIMEOUT, BenchCluster, bench_cluster, planes, print_progress
from .report import table

WINDOW = 5.0
"""Seconds without writes and with little CPU time after which an operator has settled."""
POLL = 1.0
IDLE_CPU = 0.05
"""CPU seconds per second that an operator without work may use."""


class Plane(Object):
    """A control plane of any operator."""

    status: dict[str, Any] | None = None


PLANE = Kind(CONTROL_PLANE.group, CONTROL_PLANE.version, CONTROL_PLANE.name, CONTROL_PLANE.plural, Plane)


class Measured(msgspec.Struct, kw_only=True):
    """What one operator used."""

    start_cpu: float
    """CPU seconds from exec until it has settled in a cluster without control planes."""
    idle: float
    """Resident megabytes then."""
    wall: float
    """Seconds from the first create until the last change of a control plane, Deployment or Service."""
    cpu: float
    """CPU seconds for all control planes."""
    server_cpu: float
    writes: int
    resident: float
    """Resident megabytes with all control planes."""
    restart_cpu: float
    """CPU seconds from exec until it has settled with all control planes present."""
    restart_writes: int


class Comparison(msgspec.Struct, kw_only=True):
    """One run of each operator with the same number of control planes."""

    number: int
    ours: Measured
    other: Measured


async def compare(number: int, ours: Candidate, other: Candidate) -> Comparison:
    """Run both operators in turn, each on a new cluster."""
    found = []
    for candidate in (ours, other):
        print_progress(f"{candidate.name}, {number} control planes")
        async with bench_cluster(candidate.crds) as here:
            found.append(await measure(here, candidate, number))
    return Comparison(number=number, ours=found[0], other=found[1])


async def measure(here: BenchCluster, candidate: Candidate, number: int, window: float = WINDOW) -> Measured:
    """Start an operator, create control planes, and restart it."""
    server = here.cluster.apiserver.pid
    with candidate.running(here) as process:
        await settled(here, process, window)
        idle, server_before, writes_before = samples.usage(process.pid), samples.usage(server), writes(here)
        wall = await converge(here, process, number, window)
        used, server_after = samples.usage(process.pid), samples.usage(server)
        written = writes(here) - writes_before - number  # created by the user
    writes_before = writes(here)
    with candidate.running(here) as process:
        await settled(here, process, window)
        restarted = samples.usage(process.pid)
    return Measured(
        start_cpu=idle.cpu,
        idle=idle.resident,
        wall=wall,
        cpu=used.cpu - idle.cpu,
        server_cpu=server_after.cpu - server_before.cpu,
        writes=written,
        resident=used.resident,
        restart_cpu=restarted.cpu,
        restart_writes=writes(here) - writes_before,
    )


def writes(here: BenchCluster) -> int:
    """Count the write requests to the API server so far, except for Leases."""
    return samples.writes(samples.requests(here.cluster))


async def converge(here: BenchCluster, process: Process, number: int, window: float) -> float:
    """Create control planes, and return the seconds until the last change when the operator has settled."""
    async with AsyncExitStack() as stack:
        owners = await stack.enter_async_context(here.informer(PLANE))
        deployments = await stack.enter_async_context(here.informer(DEPLOYMENT))
        services = await stack.enter_async_context(here.informer(SERVICE))
        last = began = time.monotonic()

        def on_change(_: object) -> None:
            nonlocal last
            last = time.monotonic()

        owners.listen(on_change)
        deployments.listen(on_change)
        services.listen(on_change)
        await here.make(PLANE, planes(number))
        await settled(here, process, window, lambda: complete(number, owners, deployments, services))
        return last - began


def complete(number: int, owners: Informer[Plane], *children: Informer[Any]) -> bool:
    """Whether all control planes have a status, and one child of each kind."""
    reported = {plane.metadata.uid for plane in owners if plane.status}
    return len(reported) == number and all(reported <= _owners(informer) for informer in children)


def _owners(children: Informer[Any]) -> set[str]:
    return {child.controller.uid for child in children if child.controller is not None}


@dataclass(frozen=True)
class Moment:
    """What an operator has used until a moment."""

    seconds: float
    cpu: float
    writes: int


async def settled(here: BenchCluster, process: Process, window: float, done: Callable[[], bool] = lambda: True) -> None:
    """Wait until an operator has done its work."""
    seen: deque[Moment] = deque()
    async with asyncio.timeout(TIMEOUT):
        while not (is_quiet(seen, window) and done()):
            if not process.running:
                raise ProcessFailed(f"{process.name} exited with {process.child.returncode}; {tail(process.log)}")
            written = await asyncio.to_thread(writes, here)
            seen.append(Moment(time.monotonic(), samples.usage(process.pid).cpu, written))
            while len(seen) > 1 and seen[1].seconds <= seen[-1].seconds - window:
                seen.popleft()
            await asyncio.sleep(POLL)


def is_quiet(seen: Sequence[Moment], window: float) -> bool:
    """Whether an operator did not write and hardly used the CPU.

    | observed for at least the window | writes in it | CPU in it      | quiet |
    |----------------------------------|--------------|----------------|-------|
    | no                               | any          | any            | no    |
    | yes                              | some         | any            | no    |
    | yes                              | none         | more than idle | no    |
    | yes                              | none         | idle           | yes   |
    """
    if not seen or seen[-1].seconds - seen[0].seconds < window:
        return False
    first, last = seen[0], seen[-1]
    return first.writes == last.writes and last.cpu - first.cpu <= IDLE_CPU * (last.seconds - first.seconds)


def report(runs: Sequence[Comparison], ours: str, other: str) -> str:
    """Return the table; a ratio below 1 means that this operator needs less."""
    rows = [row for run in runs for row in _rows(run)]
    return table(["metric", "control planes", ours, other, "ratio"], rows)


def _rows(run: Comparison) -> list[tuple[str, int, str, str, str]]:
    number = run.number
    metrics: list[tuple[str, str, Callable[[Measured], float]]] = [
        ("CPU to start, s", ".2f", lambda found: found.start_cpu),
        ("RSS after the start, MB", ".0f", lambda found: found.idle),
        ("wall time to converge, s", ".1f", lambda found: found.wall),
        ("operator CPU per object, ms", ".2f", lambda found: found.cpu / number * 1000),
        ("API server CPU per object, ms", ".1f", lambda found: found.server_cpu / number * 1000),
        ("writes per object", ".2f", lambda found: found.writes / number),
        ("RSS with all objects, MB", ".0f", lambda found: found.resident),
        ("CPU to restart, s", ".2f", lambda found: found.restart_cpu),
        ("writes after a restart", ".0f", lambda found: found.restart_writes),
    ]
    values = [(name, style, get(run.ours), get(run.other)) for name, style, get in metrics]
    return [
        (name, number, format(ours, style), format(other, style), _ratio(ours, other))
        for name, style, ours, other in values
    ]


def _ratio(ours: float, other: float) -> str:
    if ours == other:
        return "1.00"
    return f"{ours / other:.2f}" if other else "-"
