"""The ReplicaSet controller of Kubernetes never removes a pod with a running build."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Unstructured
from tests.support import eventually
from tests.support.clock import SystemClock
from tests.support.objects import list_all
from tests.support.provisioners import NAME, ProvisionerNamespace, provisioner_namespace

pytestmark = pytest.mark.slow

MAXIMUM = 8
TIMEOUT = 120.0
FAST = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@pytest.fixture
async def place(full_cluster: FullCluster, full_cluster_operator: Path) -> AsyncIterator[ProvisionerNamespace]:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    full_cluster.kubectl("create", "namespace", namespace)
    made = provisioner_namespace(full_cluster.kubeconfig, full_cluster_operator, namespace, clock=SystemClock())
    async with made as place:
        await place.make_plane("demo")
        yield place


async def pods(place: ProvisionerNamespace) -> list[Unstructured]:
    found = await list_all(place.client, POD, place.namespace, "app.kubernetes.io/name=coder-provisioner")
    return [pod for pod in found if not pod.deleting]


async def names(place: ProvisionerNamespace) -> set[str]:
    return {pod.metadata.name for pod in await pods(place)}


class Round:
    """Scales up until all pods are busy, then in to those of a random set."""

    def __init__(self, place: ProvisionerNamespace, random: Random) -> None:
        self.place = place
        self.random = random
        self.state = place.plane.coderd.state
        self.busy: dict[str, str] = {}
        """The jobs that run, by pod."""

    async def scale_up(self, number: int) -> None:
        for _ in range(number - len(self.busy)):
            self.state.queue.add_job()
        async with self.place.operator():
            await eventually(lambda: self.has_ready(number), TIMEOUT)
        key = (await self.place.get()).status.provisioner_key_name
        daemons = {each.name: each.id for each in self.state.daemons.values()}
        for name in sorted(await names(self.place)):
            daemon = daemons.get(name) or self.state.connect_daemon(name, key)
            if name not in self.busy:
                self.busy[name] = self.state.acquire_job(daemon)
        assert all(self.busy.values())

    async def scale_in(self) -> None:
        """End some of the builds. The others keep their pods."""
        ending = self.random.sample(sorted(self.busy), self.random.randint(1, len(self.busy)))
        for name in ending:
            self.state.queue.finish_job(self.busy.pop(name))
        left = max(1, len(self.busy))
        async with self.place.operator():
            await eventually(lambda: self.has(left), TIMEOUT)
        remaining = await names(self.place)
        assert self.busy.keys() <= remaining, "a pod with a running build was removed"
        for daemon in [each for each in self.state.daemons.values() if each.name not in remaining]:
            assert self.state.queue.current(daemon.id) is None
            self.state.disconnect_daemon(daemon.id)

    async def has(self, number: int) -> bool:
        return len(await pods(self.place)) == number

    async def has_ready(self, number: int) -> bool:
        found = await pods(self.place)
        ready = [pod for pod in found if _is_ready(pod)]
        return len(found) == len(ready) == number


def _is_ready(pod: Unstructured) -> bool:
    conditions = (pod.manifest.get("status") or {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def scale(place: ProvisionerNamespace, rounds: int, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - the same in every run
    await place.make(NAME, autoscaling={"maxReplicas": MAXIMUM, "behavior": FAST})
    turn = Round(place, random)
    for _ in range(rounds):
        await turn.scale_up(random.randint(max(3, len(turn.busy) + 1), MAXIMUM))
        await turn.scale_in()
    note = f"{rounds} scale-ins, 0 busy victims"
    print(note)  # noqa: T201


@pytest.mark.timeout(600)
async def test_no_busy_pod_is_removed(place: ProvisionerNamespace) -> None:
    await scale(place, rounds=3, seed=0)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_no_busy_pod_is_removed_in_100_rounds(place: ProvisionerNamespace) -> None:
    await scale(place, rounds=100, seed=1)
