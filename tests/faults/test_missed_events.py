"""What a watch tells late, twice, in another order or not at all changes nothing about where everything ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coder_k8s import kube
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually
from tests.support.forwarding import WAYS, UnreliableWatches
from tests.support.operators import Operator
from tests.support.rotations import RotationNamespace

from .seeds import seeds
from .workload import Workload, is_steady

TIMEOUT = 90.0
PRODUCT = Path(kube.__file__).parents[1]
BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build)

UnreliableRun = Callable[[int, float], Awaitable[None]]


async def run_with_unreliable_watches(
    cluster: ClusterAccess, place: RotationNamespace, kubeconfig: Path, folder: Path, seed: int, seconds: float
) -> None:
    """Let people work while the operator hears only part of it; then compare with an operator that knows all."""
    print(f"seed {seed}")  # noqa: T201
    work = Workload(place, Random(seed))  # noqa: S311 - the same choices in every run
    namespaces, routes = [place.namespace], place.routes
    async with UnreliableWatches(cluster, Random(seed)) as proxy:  # noqa: S311 - the same choices in every run
        unreliable = proxy.kubeconfig(kubeconfig, folder / "unreliable")
        async with Operator(unreliable, namespaces, *BUILDERS, connect_to=routes) as operator:
            await operator.wait_idle()
            before = tasks()
            await work.create_all()
            await work.run(seconds)
            while not proxy.done.keys() >= set(WAYS):
                await work.run(1)
            proxy.share = 0.0
            proxy.cut()
            await eventually(lambda: is_steady(work), TIMEOUT)
            for stage in (mix_up, withhold):
                await stage(proxy, work)
                await eventually(lambda: is_steady(work), TIMEOUT)
                await operator.wait_idle()
                async with Operator(kubeconfig, namespaces, *BUILDERS, connect_to=routes) as fresh:
                    await fresh.wait_idle()
                    assert fresh.writes() == 0, "an operator that starts anew finds something to do"
                    await eventually(lambda: known(operator) == known(fresh), TIMEOUT)
            await eventually(lambda: tasks() == before, TIMEOUT)
    print(f"{work.done} changes, watches: {dict(proxy.done)}")  # noqa: T201


async def mix_up(proxy: UnreliableWatches, work: Workload) -> None:
    """Tell of the last changes in another order: no list follows, so an older state must not replace a newer one."""
    proxy.share, proxy.ways = 1.0, ("swap",)
    await work.change_all(times=2)
    proxy.share = 0.0
    proxy.cut(lost=False)  # what waits for another event to be swapped with is told by the next watch


async def withhold(proxy: UnreliableWatches, work: Workload) -> None:
    """Tell of the last changes not at all: only the list after `Gone` shows them."""
    proxy.share, proxy.ways = 1.0, ("drop",)
    await work.replace_some()
    proxy.share = 0.0
    proxy.cut()


def known(operator: Operator) -> dict[Kind[Any], dict[Key, str]]:
    """Which version of which object an operator knows; what belongs to no namespace may belong to other tests."""
    return {
        kind: {each.key: each.metadata.resource_version for each in informer}
        for kind, informer in operator.informers.items()
        if kind.namespaced
    }


def tasks() -> int:
    """How many tasks the operator has."""
    code = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    return sum(each is not None and PRODUCT in Path(each.co_filename).parents for each in code)


@pytest.fixture
def unreliable_run(
    cluster: ClusterAccess,
    place: RotationNamespace,
    operator_kubeconfig: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> UnreliableRun:
    """Runs with unreliable watches, in which no operator may log a traceback: `unreliable_run(seed, seconds)`."""

    async def unreliable_run(seed: int, seconds: float) -> None:
        with caplog.at_level(logging.ERROR):
            await run_with_unreliable_watches(cluster, place, operator_kubeconfig, tmp_path, seed, seconds)
        assert not [record.getMessage() for record in caplog.records if record.exc_info]

    return unreliable_run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(3))
async def test_five_seconds_of_gossip(unreliable_run: UnreliableRun, seed: int) -> None:
    await unreliable_run(seed, 5)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", seeds(100, 101, 102))
async def test_five_minutes_of_gossip(unreliable_run: UnreliableRun, seed: int) -> None:
    await unreliable_run(seed, 300)
