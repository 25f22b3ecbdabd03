"""An operator with continuous faults of all its servers leaks no resources."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.e2e.conftest import launch, lease_namespace, start
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support import eventually
from tests.support.databases import CoderdDatabase
from tests.support.forwarding import UnreliableServer
from tests.support.rotations import RotationNamespace

from .environment import FaultyEnvironment, faulty_environment
from .seeds import seeds
from .workload import is_steady

__all__ = ["launch", "lease_namespace", "start"]

TIMEOUT = 120.0
PAGE = os.sysconf("SC_PAGE_SIZE")
MEGABYTE = 1 << 20


class Sample(NamedTuple):
    """The resource usage of an operator."""

    memory: float
    """Megabytes of resident memory."""
    tasks: float
    descriptors: float
    sockets: float
    threads: float


async def sample(operator: OperatorProcess) -> Sample:
    tasks = await operator.metric("coder_k8s_tasks")
    process = Path("/proc") / str(operator.pid)
    links = []
    for descriptor in (process / "fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue  # closed in the meantime
    resident = int((process / "statm").read_text().split()[1]) * PAGE / MEGABYTE
    sockets = sum(link.startswith("socket:") for link in links)
    return Sample(resident, tasks, len(links), sockets, len(list((process / "task").iterdir())))


async def observe(operator: OperatorProcess, seconds: float) -> list[Sample]:
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(await sample(operator))
        for probe in ("/healthz", "/readyz"):
            status, text = await operator.get("health", probe)
            assert status == 200, text
        await asyncio.sleep(0.5)
    return samples


def middle(samples: list[Sample]) -> Sample:
    return Sample(*(median(values) for values in zip(*samples, strict=True)))


class Span(NamedTuple):
    """Seconds of faults of the API server, of faults of other servers, and of the longest fault.

    The operator retries a server that did not respond after 30 s, so the API server fails for longer than the others.
    """

    total: float
    faults: float
    longest: float


SoakRun = Callable[[int, Span], Awaitable[None]]


async def soak(
    cluster: ClusterAccess, around: FaultyEnvironment, start: Start, kubeconfig: Path, folder: Path, span: Span
) -> None:
    """Run with faults, and compare the resource usage in the second quarter with that in the last."""
    routes = ",".join(f"{at.host}:{at.port}={to.host}:{to.port}" for at, to in around.routes.items())
    rng = Random(around.rng.random())  # noqa: S311 - deterministic
    async with UnreliableServer(cluster, rng, share=0.1) as server:
        flags = ("--no-leader-elect", f"--coderd-connect-to={routes}")
        operator = start(*flags, kubeconfig=server.kubeconfig(kubeconfig, folder / "faulty"))
        await eventually(lambda: is_steady(around), TIMEOUT)
        before = await sample(operator)
        running = asyncio.create_task(around.run(*span))
        samples = await observe(operator, span.total)
        await running
        quarter = len(samples) // 4
        early, late = middle(samples[quarter : 2 * quarter]), middle(samples[-quarter:])
        print(f"{around.work.done} + {around.home.done} changes, {dict(server.done)}")  # noqa: T201
        print(f"{dict(around.injected)}, from {early} to {late}")  # noqa: T201
        assert late.memory <= early.memory * 1.05 + 2
        assert late.tasks <= early.tasks + 5
        assert late.descriptors <= early.descriptors + 5
        assert late.sockets <= early.sockets + 5
        assert late.threads <= early.threads
        server.share = 0.0
        server.cut()
        await eventually(lambda: is_steady(around), TIMEOUT)
        await eventually(lambda: is_back_to(operator, before), TIMEOUT)
        print(f"steady, from {before} to {await sample(operator)}")  # noqa: T201
        operator.kill()


async def is_back_to(operator: OperatorProcess, before: Sample) -> bool:
    now = await sample(operator)
    assert now.tasks == before.tasks
    assert now.descriptors <= before.descriptors + 5
    assert now.sockets <= before.sockets + 5
    return True


@pytest.fixture
def soak_run(
    cluster: ClusterAccess,
    place: RotationNamespace,
    database: CoderdDatabase,
    start: Start,
    operator_kubeconfig: Path,
    tmp_path: Path,
) -> SoakRun:
    """Runs an operator with faults of all its servers: `soak_run(seed, span)`."""

    async def soak_run(seed: int, span: Span) -> None:
        async with faulty_environment(place, database, operator_kubeconfig, seed) as around:
            await soak(cluster, around, start, operator_kubeconfig, tmp_path, span)

    return soak_run


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(6))
async def test_half_a_minute_of_faults(soak_run: SoakRun, seed: int) -> None:
    await soak_run(seed, Span(30, 15, 2.5))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(60))
async def test_half_an_hour_of_faults(soak_run: SoakRun, seed: int) -> None:
    await soak_run(seed, Span(1800, 1770, 20))
