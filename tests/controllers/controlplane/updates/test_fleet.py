"""Updates with provisioners that run jobs, and with a workspace proxy."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.api.updates import Step
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.controllers.controlplane.updates.machine import FLEET_TIMEOUT
from coder_k8s.controllers.deployments import image_in
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from tests.support import eventually, objects
from tests.support.clients import UserClient
from tests.support.clock import SystemClock
from tests.support.controlplanes import PlaneNamespace
from tests.support.daemons import Board, daemons_of_pods
from tests.support.operators import Builder

IMAGES = ("coder:v2.36.0", "coder:v2.36.1")
PLANE, DAEMONS, PROXY = "demo", "provisioner-builders", "wsproxy-sydney"
CONTAINERS = {DAEMONS: "provisioner", PROXY: "workspace-proxy"}
EVERY = 0.5
BUILD_EVERY = 12
"""One of this number of jobs is a build of three seconds."""
SLACK = 5.0
TIMEOUT = 180.0


class Fleet(PlaneNamespace):
    """A control plane, a provisioner and a workspace proxy, with the controllers of all three."""

    builders: tuple[Builder, ...] = (controlplane.build, provisioner.build, workspaceproxy.build)
    timeout = 60.0

    async def deploy(self) -> None:
        await self.put_secret("given", token=self.coderd.state.token)
        access = {"tokenSecretRef": {"name": "given"}}
        await self.make(image=IMAGES[0], replicas=2, operatorAccess=access, update={"strategy": "Recreate"})
        await self.condition("Available", "MinimumReplicasReady", "True")
        reference = {"controlPlaneRef": {"name": PLANE}}
        await objects.create(self.client, PROVISIONER, self.key_of("builders"), {**reference, "replicas": 2})
        await objects.create(self.client, WORKSPACE_PROXY, self.key_of("sydney"), reference)
        await eventually(lambda: self.uses(IMAGES[0]), TIMEOUT)

    async def update(self, image: str) -> float:
        """Update everything to an image, and return how many seconds it took until the control plane was updated."""
        began = time.monotonic()
        await self.change(image=image)
        await eventually(lambda: self.is_updated(image), TIMEOUT)
        took = time.monotonic() - began
        await eventually(lambda: self.uses(image), TIMEOUT)
        return took

    async def is_updated(self, image: str) -> bool:
        update = (await self.get()).status.update
        assert update is not None
        assert (update.image, update.step) == (image, Step.COMPLETE), update
        return True

    async def uses(self, image: str) -> bool:
        found = [await self.image(DAEMONS), await self.image(PROXY)]
        assert found == [image, image], found
        return True

    async def image(self, deployment: str) -> str:
        """The image of a Deployment; empty if it does not exist."""
        found = await objects.find(self.client, DEPLOYMENT, self.key_of(deployment))
        return image_in(found, CONTAINERS[deployment]) if found else ""


@dataclass
class Observations:
    """What was wrong at any moment."""

    wrong: set[str] = field(default_factory=set)
    stopped: int = 0
    """How often the control plane had no pod."""

    async def run(self, fleet: Fleet) -> None:
        while True:
            await self._look(fleet)
            await asyncio.sleep(0.05)

    async def _look(self, fleet: Fleet) -> None:
        # In this order: what comes last in an update is read first.
        proxy, daemons = await fleet.image(PROXY), await fleet.image(DAEMONS)
        plane = await fleet.get()
        target = plane.spec.image
        if proxy == target != daemons:
            self.wrong.add("the proxy was updated before the provisioner")
        if daemons == target != plane.status.image:
            self.wrong.add("the provisioner was updated before the control plane")
        live = await fleet.client.get(DEPLOYMENT, fleet.key)
        if not live.manifest["status"].get("replicas"):
            self.stopped += 1
            if any(job.status == "running" for job in fleet.coderd.state.queue.jobs):
                self.wrong.add("a job ran while no control plane ran")


async def post_jobs(fleet: Fleet, stopping: asyncio.Event) -> list[str]:
    """Add jobs until `stopping` is set, and return their IDs when all are done."""
    queue, added = fleet.coderd.state.queue, list[str]()
    while not stopping.is_set():
        long = len(added) % BUILD_EVERY == BUILD_EVERY - 1
        added.append(queue.add_job(seconds=3.0 if long else 0.02))
        await asyncio.sleep(EVERY)

    def is_done() -> bool:
        found = Counter(queue.job(job).status for job in added)
        assert not found["pending"] + found["running"], found
        return True

    await eventually(is_done, TIMEOUT)
    return added


@asynccontextmanager
async def deployed(cluster: FullCluster, operator: Path, folder: Path) -> AsyncIterator[Fleet]:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    cluster.kubectl("create", "namespace", namespace)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        coderd = await stack.enter_async_context(CoderdServer(now=clock))
        coderd.state.install_license()
        http = await stack.enter_async_context(Http(load(cluster.kubeconfig), "user", Metrics()))
        fleet = Fleet(UserClient(http, "user"), operator, Key(namespace, PLANE), coderd, clock)
        board = await stack.enter_async_context(Board({PLANE: coderd}, namespace).open())
        await stack.enter_async_context(daemons_of_pods(fleet.client, {namespace: board}, folder))
        async with fleet.operator():
            await fleet.deploy()
            yield fleet
        for kind, name in ((WORKSPACE_PROXY, "sydney"), (PROVISIONER, "builders"), (CONTROL_PLANE, PLANE)):
            await fleet.delete(kind, name)


async def update_while_jobs_run(fleet: Fleet, times: int) -> None:
    observed, stopping = Observations(), asyncio.Event()
    observing = asyncio.create_task(observed.run(fleet))
    posting = asyncio.create_task(post_jobs(fleet, stopping))
    longest = 0.0
    try:
        for turn in range(1, times + 1):
            longest = max(longest, await fleet.update(IMAGES[turn % 2]))
    finally:
        stopping.set()
        added = await posting
        observing.cancel()
        await asyncio.wait([observing])
    assert observing.cancelled(), observing.exception()
    jobs = [fleet.coderd.state.queue.job(job) for job in added]
    waited = max((job.started_at - job.created_at).total_seconds() for job in jobs if job.started_at)
    print(f"{times} updates of at most {longest:.1f} s; {len(jobs)} jobs, longest wait {waited:.1f} s")  # noqa: T201
    assert observed.wrong == set()
    assert observed.stopped
    assert {job.status for job in jobs} == {"succeeded"}
    assert waited <= longest + SLACK


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_jobs_wait_and_the_fleet_follows_in_order(
    full_cluster: FullCluster, full_cluster_operator: Path, tmp_path: Path
) -> None:
    async with deployed(full_cluster, full_cluster_operator, tmp_path) as fleet:
        await update_while_jobs_run(fleet, 1)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_no_job_is_lost_in_20_updates(
    full_cluster: FullCluster, full_cluster_operator: Path, tmp_path: Path
) -> None:
    async with deployed(full_cluster, full_cluster_operator, tmp_path) as fleet:
        await update_while_jobs_run(fleet, 20)


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_autoscaled_provisioner_without_pods(
    full_cluster: FullCluster, full_cluster_operator: Path, tmp_path: Path
) -> None:
    """The update is complete long before the time that it waits for provisioners at most."""
    idle = {"controlPlaneRef": {"name": PLANE}, "replicas": 0, "autoscaling": {"minReplicas": 0, "maxReplicas": 2}}
    async with deployed(full_cluster, full_cluster_operator, tmp_path) as fleet:
        key = fleet.key_of("idle")
        await objects.create(fleet.client, PROVISIONER, key, idle)

        async def is_at_zero() -> bool:
            scaling = (await fleet.client.get(PROVISIONER, key)).status.autoscaling
            return scaling is not None and scaling.desired_replicas == 0

        await eventually(is_at_zero, TIMEOUT)
        await fleet.client.merge(PROVISIONER, key, {"spec": {"replicas": 1}})
        took = await fleet.update(IMAGES[1])
        live = await fleet.client.get(DEPLOYMENT, fleet.key_of("provisioner-idle"))
        print(f"the update took {took:.1f} s")  # noqa: T201
        assert took < FLEET_TIMEOUT.total_seconds() / 4
        assert image_in(live, CONTAINERS[DAEMONS]) == IMAGES[1]
        await fleet.delete(PROVISIONER, "idle")
