"""Nothing piles up in an operator at which everything goes wrong for long."""

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
    """What an operator takes at a moment."""

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
            continue  # closed meanwhile
    resident = int((process / "statm").read_text().split()[1]) * PAGE / MEGABYTE
    sockets = sum(link.startswith("socket:") for link in links)
    return Sample(resident, tasks, len(links), sockets, len(list((process / "task").iterdir())))


async def observe(operator: OperatorProcess, seconds: float) -> list[Sample]:
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(await sample(operator))
        for probe in ("/healthz", "/readyz"):
            status, words = await operator.get("health", probe)
            assert status == 200, words
        await asyncio.sleep(0.5)
    return samples


def middle(samples: list[Sample]) -> Sample:
    return Sample(*(median(values) for values in zip(*samples, strict=True)))


class Span(NamedTuple):
    """For how many seconds watches and requests fail, other servers have faults, and one of those lasts at most.

    A server that did not answer is asked again after 30 s, so the former outlast the faults of servers.
    """

    storm: float
    faults: float
    longest: float


Storm = Callable[[int, Span], Awaitable[None]]


async def soak(
    cluster: ClusterAccess, around: FaultyEnvironment, start: Start, kubeconfig: Path, folder: Path, span: Span
) -> None:
    """Work in a storm, and compare what the operator takes in the second quarter with what it takes in the last."""
    routes = ",".join(f"{at.host}:{at.port}={to.host}:{to.port}" for at, to in around.routes.items())
    rng = Random(around.rng.random())  # noqa: S311 - the same in every run
    async with UnreliableServer(cluster, rng, share=0.1) as storm:
        flags = ("--no-leader-elect", f"--coderd-connect-to={routes}")
        operator = start(*flags, kubeconfig=storm.kubeconfig(kubeconfig, folder / "storm"))
        await eventually(lambda: is_steady(around), TIMEOUT)
        before = await sample(operator)
        living = asyncio.create_task(around.live(*span))
        samples = await observe(operator, span.storm)
        await living
        quarter = len(samples) // 4
        early, late = middle(samples[quarter : 2 * quarter]), middle(samples[-quarter:])
        print(f"{around.work.done} + {around.home.done} changes, {dict(storm.done)}")  # noqa: T201
        print(f"{dict(around.injected)}, from {early} to {late}")  # noqa: T201
        assert late.memory <= early.memory * 1.05 + 2
        assert late.tasks <= early.tasks + 5
        assert late.descriptors <= early.descriptors + 5
        assert late.sockets <= early.sockets + 5
        assert late.threads <= early.threads
        storm.share = 0.0
        storm.cut()
        await eventually(lambda: is_steady(around), TIMEOUT)
        await eventually(lambda: is_as(operator, before), TIMEOUT)
        print(f"steady, from {before} to {await sample(operator)}")  # noqa: T201
        operator.kill()


async def is_as(operator: OperatorProcess, before: Sample) -> bool:
    now = await sample(operator)
    assert now.tasks == before.tasks
    assert now.descriptors <= before.descriptors + 5
    assert now.sockets <= before.sockets + 5
    return True


@pytest.fixture
def storm(
    cluster: ClusterAccess,
    place: RotationNamespace,
    database: CoderdDatabase,
    start: Start,
    operator_kubeconfig: Path,
    tmp_path: Path,
) -> Storm:
    """Runs an operator with faults of all its servers: `storm(seed, span)`."""

    async def storm(seed: int, span: Span) -> None:
        async with faulty_environment(place, database, operator_kubeconfig, seed) as around:
            await soak(cluster, around, start, operator_kubeconfig, tmp_path, span)

    return storm


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(6))
async def test_a_minute_in_a_storm(storm: Storm, seed: int) -> None:
    await storm(seed, Span(60, 30, 2.5))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(60))
async def test_half_an_hour_in_a_storm(storm: Storm, seed: int) -> None:
    await storm(seed, Span(1800, 1770, 20))
