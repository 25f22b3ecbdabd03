"""Watch events that are late, repeated, reordered or lost do not change the steady state."""

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

pytestmark = pytest.mark.slow

TIMEOUT = 90.0
PRODUCT = Path(kube.__file__).parents[1]
BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build)

UnreliableRun = Callable[[int, float], Awaitable[None]]


async def run_with_unreliable_watches(
    cluster: ClusterAccess, place: RotationNamespace, kubeconfig: Path, folder: Path, seed: int, seconds: float
) -> None:
    """Change objects while the operator misses events; then compare it with an operator that has complete caches."""
    print(f"seed {seed}")  # noqa: T201
    work = Workload(place, Random(seed))  # noqa: S311 - deterministic
    namespaces, routes = [place.namespace], place.routes
    async with UnreliableWatches(cluster, Random(seed)) as proxy:  # noqa: S311 - deterministic
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
            for stage in (reorder_events, drop_events):
                await stage(proxy, work)
                await eventually(lambda: is_steady(work), TIMEOUT)
                await operator.wait_idle()
                async with Operator(kubeconfig, namespaces, *BUILDERS, connect_to=routes) as fresh:
                    await fresh.wait_idle()
                    assert fresh.writes() == 0, "a new operator finds changes to make"
                    await eventually(lambda: known(operator) == known(fresh), TIMEOUT)
            await eventually(lambda: tasks() == before, TIMEOUT)
    print(f"{work.done} changes, watches: {dict(proxy.done)}")  # noqa: T201


async def reorder_events(proxy: UnreliableWatches, work: Workload) -> None:
    """Reorder the events of the last changes: no list follows, so an older state must not replace a newer one."""
    proxy.share, proxy.ways = 1.0, ("swap",)
    await work.change_all(times=2)
    proxy.share = 0.0
    proxy.cut(lost=False)  # the next watch delivers events that are still held


async def drop_events(proxy: UnreliableWatches, work: Workload) -> None:
    """Drop the events of the last changes: only the list after `Gone` has them."""
    proxy.share, proxy.ways = 1.0, ("drop",)
    await work.replace_some()
    proxy.share = 0.0
    proxy.cut()


def known(operator: Operator) -> dict[Kind[Any], dict[Key, str]]:
    """The versions of the namespaced objects in the caches of an operator; other objects may belong to other tests."""
    return {
        kind: {each.key: each.metadata.resource_version for each in informer}
        for kind, informer in operator.informers.items()
        if kind.namespaced
    }


def tasks() -> int:
    """The number of asyncio tasks of the operator."""
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
async def test_five_seconds_of_unreliable_watches(unreliable_run: UnreliableRun, seed: int) -> None:
    await unreliable_run(seed, 5)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", seeds(100, 101, 102))
async def test_five_minutes_of_unreliable_watches(unreliable_run: UnreliableRun, seed: int) -> None:
    await unreliable_run(seed, 300)
