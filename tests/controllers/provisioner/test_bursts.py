"""A burst of jobs over two provisioners that share tags: all of them run, and the pods are removed afterwards."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.metrics import Metrics
from tests.support import eventually
from tests.support.clock import SystemClock
from tests.support.daemons import Board, daemons_of_pods
from tests.support.objects import list_all
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace

GPU = {"gpu": "true"}
SPECS = {
    "small": {"tags": GPU, "maximum": 4},
    "large": {"tags": {**GPU, "zone": "a"}, "maximum": 8},
}
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 5}}
TIMEOUT = 400.0


@pytest.fixture
async def place(
    full_cluster: FullCluster, full_cluster_operator: Path, tmp_path: Path
) -> AsyncIterator[ProvisionerNamespace]:
    """Two autoscaled provisioners, whose pods run daemons."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    full_cluster.kubectl("create", "namespace", namespace)
    async with AsyncExitStack() as stack:
        made = provisioner_namespace(full_cluster.kubeconfig, full_cluster_operator, namespace, clock=SystemClock())
        place = await stack.enter_async_context(made)
        await place.make_plane("demo")
        board = await stack.enter_async_context(Board({"demo": place.plane.coderd}, "burst", ghosts=True).open())
        http = await stack.enter_async_context(Http(load(full_cluster.kubeconfig), "kubelet", Metrics()))
        await stack.enter_async_context(daemons_of_pods(Client(http, "kubelet"), {namespace: board}, tmp_path))
        for name, spec in SPECS.items():
            autoscaling = {"maxReplicas": spec["maximum"], "behavior": BEHAVIOR}
            await place.make(name, tags=spec["tags"], autoscaling=autoscaling)
        yield place


async def pods(place: ProvisionerNamespace) -> dict[str, int]:
    """The pods of each provisioner."""
    found = await list_all(place.client, POD, place.namespace, "app.kubernetes.io/name=coder-provisioner")
    of = [pod.metadata.labels["app.kubernetes.io/instance"] for pod in found]
    return {name: of.count(name) for name in SPECS}


async def rotate(place: ProvisionerNamespace) -> None:
    await place.annotate("large", rotate_key="now")


async def update(place: ProvisionerNamespace) -> None:
    """An update that migrates the database: provisioners stop, Coder is away, and then runs another version."""

    async def is_stopped() -> bool:
        found = await pods(place)
        assert found == dict.fromkeys(SPECS, 0), found
        return True

    await place.set_plane_status("demo", update={"image": "coder:v2.37.0", "step": "Drain"})
    await eventually(is_stopped, TIMEOUT)
    queue = place.plane.coderd.state.queue
    await eventually(lambda: not [job for job in queue.jobs if job.status == "running"], TIMEOUT)  # daemons finish them
    assert queue.pending(), "jobs wait for the end of the update"
    await place.set_plane_status("demo", update={"image": "coder:v2.37.0", "step": "Migrate"})
    place.plane.coderd.state.set(failing=True)
    await asyncio.sleep(3)  # the operator reads the jobs meanwhile, if it does not know about the update
    assert await is_stopped()
    place.plane.coderd.state.set(failing=False)
    for step in ("ScaleBack", "Fleet", "Complete"):
        done = {"image": "coder:v2.37.0"} if step != "ScaleBack" else {}
        await place.set_plane_status("demo", update={"image": "coder:v2.37.0", "step": step}, **done)


async def run_burst(
    place: ProvisionerNamespace, jobs: int, meanwhile: Callable[[ProvisionerNamespace], Awaitable[None]] | None = None
) -> None:
    queue = place.plane.coderd.state.queue
    most = dict.fromkeys(SPECS, 0)
    async with place.operator():
        for name in SPECS:
            await place.condition("Ready", "AllReady", name=name, within=TIMEOUT)
        ids = [queue.add_job(GPU, seconds=1.0 + number % 3) for number in range(jobs)]

        async def is_drained() -> bool:
            for name, number in (await pods(place)).items():
                most[name] = max(most[name], number)
            left = [job for job in ids if queue.job(job).completed_at is None]
            assert not left, f"{len(left)} jobs are left"
            return True

        async def is_busy() -> bool:
            return any(queue.job(job).completed_at is not None for job in ids)

        if meanwhile is not None:
            await eventually(is_busy, TIMEOUT)
            await meanwhile(place)
        await eventually(is_drained, TIMEOUT)

        async def is_small() -> bool:
            found = await pods(place)
            assert found == dict.fromkeys(SPECS, 1), found
            return True

        await eventually(is_small, TIMEOUT)
        assert len((await place.get("large")).status.retiring_keys) == 0
    errors = [queue.job(job).error for job in ids if queue.job(job).error]
    assert errors == [], "a job was lost or killed"
    assert most["small"] == SPECS["small"]["maximum"]
    assert most["large"] > 1
    print(f"{jobs} jobs, at most {most} pods")  # noqa: T201


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_burst_is_drained_without_a_lost_job(place: ProvisionerNamespace) -> None:
    await run_burst(place, jobs=24)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_a_burst_of_200_jobs(place: ProvisionerNamespace) -> None:
    await run_burst(place, jobs=200)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_a_burst_during_a_key_rotation(place: ProvisionerNamespace) -> None:
    await run_burst(place, 60, rotate)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_a_burst_during_an_update_of_the_control_plane(place: ProvisionerNamespace) -> None:
    await run_burst(place, 60, update)
