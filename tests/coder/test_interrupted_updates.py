"""Updates of a real Coder that are interrupted, that take long, or that run without the steps of an update."""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import asyncpg
import pytest

from coder_k8s.coderd.schema_db import schema_version
from coder_k8s.dev.coder_build import LATEST
from tests.e2e.operator_process import OperatorProcess
from tests.support import eventually
from tests.support.real_coder import RealPlane, image

from .observed_update import TIMEOUT, image_of, is_updated, make_observable, observing, servers, updated

OLD, NEW = "2.30.0", LATEST
SEEDS = 20
LIFE = (1.0, 9.0)
"""How many seconds an operator lives. It needs one or two to start."""
START = (0.0, 4.0)
"""How many seconds the process of a new pod lives: it connects to the database, migrates it and serves."""

log = logging.getLogger("coder_k8s.tests")

pytestmark = pytest.mark.timeout(900)


class Killer:
    """Sends SIGKILL to operators and to pods at random moments until an update is complete."""

    def __init__(self, plane: RealPlane, folder: Path, seed: int) -> None:
        self.plane = plane
        self.kills: Counter[str] = Counter()
        self._folder = folder
        self._random = Random(seed)  # noqa: S311 - deterministic

    async def run(self) -> None:
        killing = asyncio.create_task(self._kill_pods())
        try:
            while not await is_updated(self.plane, NEW):
                await self._run_operator()
        finally:
            killing.cancel()
            await asyncio.wait([killing])
            assert killing.cancelled() or killing.exception() is None, killing.exception()

    async def _run_operator(self) -> None:
        """Start an operator, and kill it at a random moment or when the update is complete."""
        [(service, coderd)] = self.plane.routes.items()
        operator = OperatorProcess(
            f"operator-{self.kills.total()}",
            self._folder,
            self.plane.kubeconfig,
            "--no-leader-elect",
            f"--watch-namespaces={self.plane.namespace}",
            f"--coderd-connect-to={service.host}:{service.port}={coderd.host}:{coderd.port}",
        )
        operator.start()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(*LIFE)):
                    await eventually(lambda: is_updated(self.plane, NEW), TIMEOUT)
            assert operator.running, operator.log.read_text()[-2000:]
        finally:
            operator.kill()
        assert not operator.defects
        self.kills["operator"] += 1

    async def _kill_pods(self) -> None:
        """Kill the first process of the new version once or twice: after three crashes, an update is rolled back."""
        for _ in range(self._random.choice((1, 2))):
            pid = await eventually(self._process, 600)
            await asyncio.sleep(self._random.uniform(*START))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills["pod"] += 1

    async def _process(self) -> int:
        """The process of a pod of the new version; 0 if there is none."""
        for pod in await servers(self.plane):
            if image_of(pod) == image(NEW) and (pod.manifest.get("status") or {}).get("podIP"):
                with suppress(AssertionError):
                    return self.plane.pid(pod)
        return 0


@pytest.mark.campaign
@pytest.mark.coder(OLD, NEW)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_operator_and_migrating_pod_are_killed(real_coder: RealPlane, tmp_path: Path, seed: int) -> None:
    async with real_coder.operator():
        await make_observable(real_coder, OLD)
        before, _ = await schema_version(real_coder.database.url)
    killer = Killer(real_coder, tmp_path, seed)
    async with observing(real_coder) as found:
        await real_coder.change(image=image(NEW))
        async with asyncio.timeout(600):
            await killer.run()
    log.info("seed %s: killed %s; downtime %.1f s", seed, dict(killer.kills), found.downtime)
    assert killer.kills["operator"]
    assert killer.kills["pod"]
    after, _ = await schema_version(real_coder.database.url)
    assert len(found.migrated()) == 1
    assert found.connected_during_migration() == {image(NEW)}
    assert before < after
    assert found.connected(after) == {image(NEW)}
    assert (await real_coder.get()).status.image == image(NEW)
    assert (await real_coder.deployment()).manifest["spec"]["replicas"] == 2
    async with real_coder.operator():
        await real_coder.ready()


@asynccontextmanager
async def locked(plane: RealPlane, table: str) -> AsyncIterator[None]:
    """Hold a lock that a migration of this table waits for, like a long query."""
    connection = await asyncpg.connect(plane.database.url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.coder(OLD, NEW)
@pytest.mark.parametrize("seconds", [8, pytest.param(180, marks=pytest.mark.campaign)])
async def test_migration_blocked_by_a_lock_restarts_no_pod(real_coder: RealPlane, seconds: float) -> None:
    """The liveness probe would kill the pod after 6 seconds."""
    async with real_coder.operator():
        await real_coder.make(version=OLD, livenessProbe={"enabled": True, "periodSeconds": 2})
        await real_coder.ready()
        async with locked(real_coder, "workspace_agents"):
            await real_coder.change(image=image(NEW))
            await real_coder.condition("Upgrading", "Migrate", "True", within=TIMEOUT)
            [pod] = await eventually(lambda: servers(real_coder), TIMEOUT)
            await asyncio.sleep(seconds)
            found = await real_coder.condition("Upgrading", "Migrate", "True")
            assert found.message == f"A pod of image {image(NEW)} migrates the database"
            assert (await real_coder.conditions())["Available"] == ("False", "Upgrading")
            [still] = await servers(real_coder)
            assert still.metadata.uid == pod.metadata.uid
            assert [each["restartCount"] for each in still.manifest["status"]["containerStatuses"]] == [0]
        await updated(real_coder, NEW)


@pytest.mark.campaign
@pytest.mark.coder(OLD, NEW)
async def test_rolling_serves_a_schema_that_old_pods_do_not_know(real_coder: RealPlane) -> None:
    """What happens without the steps of an update: old pods are connected while the schema changes, and afterwards."""
    async with real_coder.operator():
        await make_observable(real_coder, OLD, update={"strategy": "Rolling"})
        before, _ = await schema_version(real_coder.database.url)
        async with observing(real_coder) as found:
            await real_coder.change(image=image(NEW))
            await eventually(lambda: _runs(real_coder, image(NEW)), TIMEOUT)
        after, _ = await schema_version(real_coder.database.url)
        log.info("Rolling: %s of %s requests failed", found.failures, len(found.responses))
        assert before < after
        assert image(OLD) in found.connected_during_migration()
        assert image(OLD) in found.connected(after)


async def _runs(plane: RealPlane, wanted: str) -> bool:
    return (await plane.get()).status.image == wanted
