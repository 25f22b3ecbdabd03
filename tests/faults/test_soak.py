"""Nothing piles up in an operator at which everything goes wrong for long."""

import asyncio
import os
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.e2e.conftest import launch, lease_namespace, start
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support import eventually
from tests.support.forwarding import Storm
from tests.support.rotations import Site

from .workload import Workload

__all__ = ["launch", "lease_namespace", "start"]

PATIENCE = 90.0
PAGE = os.sysconf("SC_PAGE_SIZE")
MEGABYTE = 1 << 20


class Sample(NamedTuple):
    """What an operator takes at a moment."""

    memory: float
    """Megabytes of resident memory."""
    descriptors: float
    sockets: float
    threads: float


def sample(pid: int) -> Sample:
    process = Path("/proc") / str(pid)
    links = []
    for descriptor in (process / "fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    resident = int((process / "statm").read_text().split()[1]) * PAGE / MEGABYTE
    sockets = sum(link.startswith("socket:") for link in links)
    return Sample(resident, len(links), sockets, len(list((process / "task").iterdir())))


async def observe(operator: OperatorProcess, seconds: float) -> list[Sample]:
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(sample(operator.pid))
        assert (await operator.get("health", "/healthz"))[0] == 200
        await asyncio.sleep(0.5)
    return samples


def middle(samples: list[Sample]) -> Sample:
    return Sample(*(median(values) for values in zip(*samples, strict=True)))


async def soak(
    cluster: ClusterAccess, place: Site, start: Start, kubeconfig: Path, folder: Path, seed: int, seconds: float
) -> None:
    """Work in a storm, and compare what the operator takes in the second quarter with what it takes in the last."""
    print(f"seed {seed}")  # noqa: T201
    work = Workload(place, Random(seed))  # noqa: S311 - the same in every run
    routes = ",".join(f"{at.host}:{at.port}={to.host}:{to.port}" for at, to in place.routes.items())
    async with Storm(cluster, Random(seed), share=0.1) as storm:  # noqa: S311 - the same in every run
        flags = ("--no-leader-elect", f"--coderd-connect-to={routes}")
        operator = start(*flags, kubeconfig=storm.kubeconfig(kubeconfig, folder / "storm"))
        await eventually(operator.is_ready, PATIENCE)
        working = asyncio.create_task(work.run(seconds))
        samples = await observe(operator, seconds)
        await working
        quarter = len(samples) // 4
        early, late = middle(samples[quarter : 2 * quarter]), middle(samples[-quarter:])
        print(f"{work.done} changes, {dict(storm.done)}, from {early} to {late}")  # noqa: T201
        assert late.memory <= early.memory * 1.05 + 2
        assert late.descriptors <= early.descriptors + 5
        assert late.sockets <= early.sockets + 5
        assert late.threads <= early.threads
        storm.share = 0.0
        storm.cut()
        await eventually(lambda: at_rest(work), PATIENCE)
        operator.kill()


async def at_rest(work: Workload) -> bool:
    flaws = await work.flaws()
    assert not flaws, flaws
    return True


@pytest.mark.timeout(300)
async def test_a_minute_in_a_storm(
    cluster: ClusterAccess, place: Site, start: Start, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    await soak(cluster, place, start, operator_kubeconfig, tmp_path, seed=6, seconds=50)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_half_an_hour_in_a_storm(
    cluster: ClusterAccess, place: Site, start: Start, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    await soak(cluster, place, start, operator_kubeconfig, tmp_path, seed=60, seconds=1800)
