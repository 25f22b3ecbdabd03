"""During a rotation no job waits for a daemon and no build fails."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coder_k8s.api import PROVISIONER
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import timestamp
from tests.support import eventually
from tests.support.clock import Clock, SystemClock
from tests.support.crashes import CrashRun
from tests.support.daemons import Board, daemons_of_pods
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.rotations import ROTATIONS, RotationNamespace, change_tags, rotation_namespace

pytestmark = pytest.mark.slow

REPLICAS = 2
LONGEST_WAIT = 2.0
TIMEOUT = 150.0
CAUSES = (*ROTATIONS, "interval")
GROUPS = [CAUSES[start : start + 3] for start in range(0, len(CAUSES), 3)]
"""Limited, so that the machine can start a job immediately."""


@pytest.fixture(scope="module")
def operator(full_cluster: FullCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's identity in the full cluster."""
    install_crds(full_cluster)
    return write_operator_kubeconfig(full_cluster, tmp_path_factory.mktemp("operator") / "kubeconfig")


class Stage:
    """A provisioner with daemons that run jobs, and an operator that can be restarted."""

    def __init__(self, cause: str, place: RotationNamespace, board: Board) -> None:
        self.cause = cause
        self.site = place
        self.board = board
        self.longest = 0.0
        """Maximum duration of a rotation in seconds."""
        self._again = asyncio.Event()

    async def operate(self) -> None:
        """Run an operator, and restart it on request."""
        while True:
            self._again.clear()
            async with self.site.operator():
                await self._again.wait()

    async def rotate(self, times: int) -> None:
        for turn in range(1, times + 1):
            [(_, old)] = self.site.found()
            began = time.monotonic()
            await self._act(turn)
            await self.wait_steady(old.id)
            self.longest = max(self.longest, time.monotonic() - began)

    async def wait_steady(self, old: str = "") -> None:
        """Wait until there is one new key and all daemons use it."""
        await eventually(lambda: self._is_steady(old), TIMEOUT)

    async def _is_steady(self, old: str) -> bool:
        ids = [each.key.id for each in self.site.found()]
        links = [link.key for link in self.board.links.values()]
        assert old not in ids, "the old key is still there"
        assert links == ids * REPLICAS, f"{len(links)} daemons are connected, not all with the one new key"
        differences = await self.site.differences()
        assert not differences, differences
        return True

    async def _act(self, turn: int) -> None:
        if self.cause == "interval":
            await self._let_interval_elapse()
        else:
            await ROTATIONS[self.cause](self.site, turn)
        if self.cause == "key deleted":
            self._again.set()  # a new operator reconciles immediately, this one within two minutes

    async def _let_interval_elapse(self) -> None:
        """Record that the key was created 49 hours ago; the interval is 48 hours."""
        status = {"keyCreated": timestamp(datetime.now(UTC) - timedelta(hours=49))}
        await self.site.client.merge(PROVISIONER, self.site.key, {"status": status}, "status")


@asynccontextmanager
async def staged(
    cluster: FullCluster, operator: Path, causes: Sequence[str], folder: Path
) -> AsyncIterator[list[Stage]]:
    """A provisioner per cause, in steady state with its daemons."""
    async with AsyncExitStack() as stack:
        stages: list[Stage] = []
        for cause in causes:
            namespace = f"test-{uuid.uuid4().hex[:12]}"
            cluster.kubectl("create", "namespace", namespace)
            place = await stack.enter_async_context(
                rotation_namespace(cluster.kubeconfig, operator, namespace, SystemClock(), REPLICAS)
            )
            board = await stack.enter_async_context(Board(place.coderds, cause).open())
            stages.append(Stage(cause, place, board))
        http = await stack.enter_async_context(Http(load(cluster.kubeconfig), "kubelet", Metrics()))
        boards = {stage.site.namespace: stage.board for stage in stages}
        await stack.enter_async_context(daemons_of_pods(Client(http, "kubelet"), boards, folder))
        async with asyncio.TaskGroup() as group:
            operators = [group.create_task(stage.operate()) for stage in stages]
            for stage in stages:
                await stage.site.make()
            for stage in stages:
                await stage.wait_steady()
            yield stages
            for task in operators:
                task.cancel()


async def rotate(stages: list[Stage], times: int) -> None:
    """Rotate each key this many times, while jobs run."""
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as posting:
        for stage in stages:
            posting.create_task(stage.board.post(stopping))
        async with asyncio.TaskGroup() as group:
            for stage in stages:
                group.create_task(stage.rotate(times))
        stopping.set()
    await eventually(lambda: not any(stage.board.undone for stage in stages))


def check(stages: list[Stage], times: int) -> None:
    for stage in stages:
        jobs, builds = stage.board.jobs, sum(job.seconds >= 1 for job in stage.board.jobs)
        print(  # noqa: T201
            f"{stage.cause}: {times} rotations of at most {stage.longest:.0f} s; {len(jobs)} jobs, {builds} of them "
            f"builds; longest wait {stage.board.longest_wait:.3f} s"
        )
    for stage in stages:
        assert stage.board.longest_wait <= LONGEST_WAIT, stage.cause
        if stage.cause != "key deleted":
            assert not stage.board.orphans, f"{stage.cause}: a key was deleted while a daemon was connected with it"


async def test_key_is_not_deleted_by_an_old_response(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    clock = Clock()
    async with rotation_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, clock) as place:
        trial = CrashRun(place)
        await trial.start()
        await place.make()
        await eventually(trial.pods.sync)  # the first daemon connects after the query
        await trial.operator.wait_idle()
        await change_tags(place, 1)
        await eventually(trial.pods.sync)  # the second one connects, and the first is still connected
        trial.enqueue(after=0)
        await trial.operator.wait_idle()
        assert not trial.pods.orphans()
        assert await trial.wait_steady()
        await trial.operator.kill()


@pytest.mark.timeout(300)
async def test_no_job_waits_for_a_rotation(full_cluster: FullCluster, operator: Path, tmp_path: Path) -> None:
    async with staged(full_cluster, operator, ("tags", "secret deleted", "request"), tmp_path) as stages:
        await rotate(stages, 1)
    check(stages, 1)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("causes", GROUPS, ids=", ".join)
async def test_no_job_waits_for_many_rotations(
    full_cluster: FullCluster, operator: Path, causes: Sequence[str], tmp_path: Path
) -> None:
    async with staged(full_cluster, operator, causes, tmp_path) as stages:
        await rotate(stages, 20)
    check(stages, 20)
