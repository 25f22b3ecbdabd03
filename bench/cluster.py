"""A separate cluster for each measurement, with an operator and a user."""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from tests.e2e.operator_process import OperatorProcess
from tests.support import eventually
from tests.support.installation import CONFIG, NAMESPACE, install_crds, write_operator_kubeconfig

CHILDREN: tuple[Kind[Unstructured], ...] = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT, SERVICE)
CRDS = CONFIG / "crd"
MANY = "many"
"""The namespace of the measured objects."""
AT_ONCE = 16
TIMEOUT = 600.0
ALONE: Manifest = {"operatorAccess": {"disabled": True}}
"""The spec of a control plane that does not need coderd."""

T = TypeVar("T", bound=Object)
Item = TypeVar("Item")


@dataclass(frozen=True)
class BenchCluster:
    """A cluster with the CRDs, its administrator, and the kubeconfig of the operator's ServiceAccount."""

    cluster: Cluster
    folder: Path
    kubeconfig: Path
    admin: Client
    _number: Iterator[int]

    @contextmanager
    def operator(self, *flags: str) -> Iterator[OperatorProcess]:
        """Run the operator as a process until the context ends."""
        lease = f"--leader-election-namespace={NAMESPACE}"
        operator = OperatorProcess(f"operator-{next(self._number)}", self.folder, self.kubeconfig, lease, *flags)
        operator.start()
        try:
            yield operator
            operator.stop()  # releases the Lease
        finally:
            operator.kill()
        if operator.defects:
            raise RuntimeError(f"the operator logged a defect: {operator.defects[0]}")

    @asynccontextmanager
    async def informer(self, kind: Kind[T], labels: str = "") -> AsyncIterator[Informer[T]]:
        """Run an informer for a kind as administrator, synced when the context starts."""
        informer = Informer(self.admin, kind, [MANY], metrics=Metrics(), labels=labels)
        running = asyncio.create_task(informer.run())
        try:
            await informer.synced.wait()
            yield informer
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def make(self, kind: Kind[Any], manifests: Iterable[Manifest]) -> None:
        """Create objects concurrently."""
        await each(manifests, lambda manifest: self.admin.create(kind, manifest))

    async def converge(self, manifests: list[Manifest]) -> None:
        """Create control planes, and wait until each has its status."""
        names = [manifest["metadata"]["name"] for manifest in manifests]
        async with self.informer(CONTROL_PLANE) as cache:
            waiting = asyncio.create_task(_reported(cache, names))
            await self.make(CONTROL_PLANE, manifests)
            await waiting

    async def roll_out(self, deployment: Key, ready: int = 1) -> None:
        """Set the status of a Deployment to ready."""
        generation = (await self.admin.get(DEPLOYMENT, deployment)).metadata.generation
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
        status = {"observedGeneration": generation, **counts}
        await self.admin.merge(DEPLOYMENT, deployment, {"status": status}, "status")

    async def check_children(self, number: int) -> None:
        """Check that all children exist."""
        for kind in CHILDREN:
            found = sum([len(page.items) async for page in self.admin.list(kind, MANY)])
            if found < number:
                raise RuntimeError(f"there are {found} {kind.plural} of {number}")


@asynccontextmanager
async def bench_cluster(crds: Path = CRDS) -> AsyncIterator[BenchCluster]:
    with tempfile.TemporaryDirectory(prefix="coder-k8s-bench-") as name, Cluster(Path(name) / "cluster") as cluster:
        install_crds(cluster, crds)
        cluster.kubectl("create", "namespace", MANY)
        kubeconfig = write_operator_kubeconfig(cluster, Path(name) / "kubeconfig")
        async with Http(load(cluster.kubeconfig), "bench", Metrics()) as http:
            yield BenchCluster(cluster, Path(name), kubeconfig, Client(http, "bench"), itertools.count())


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Call a function for all items, with limited concurrency."""
    left = iter(items)

    async def take() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())


async def at_rate(per_second: float, work: Callable[[], Awaitable[object]]) -> None:
    """Call a function repeatedly at an average rate, until cancelled."""
    began = time.monotonic()
    for number in itertools.count():
        await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
        await work()


def planes(number: int, spec: Manifest = ALONE, first: int = 0) -> list[Manifest]:
    return [
        {"metadata": {"namespace": MANY, "name": f"plane-{count}"}, "spec": spec}
        for count in range(first, first + number)
    ]


async def leads(operator: OperatorProcess) -> None:
    await eventually(operator.leads, TIMEOUT)


async def steady_state(operator: OperatorProcess, number: int, controller: str = "codercontrolplane") -> None:
    """Wait until this many reconciles are done and the queue is empty."""
    labels = {"controller": controller}

    async def idle() -> bool:
        return (
            await operator.metric("controller_runtime_reconcile_total", **labels) >= number
            and await operator.metric("workqueue_depth", **labels) == 0
            and await operator.metric("controller_runtime_active_workers", **labels) == 0
        )

    await eventually(idle, TIMEOUT)


async def writes(operator: OperatorProcess) -> int:
    """Count write requests of the operator, except for the Lease, the only object that it writes with PUT."""
    methods = ("POST", "PATCH", "DELETE")
    return int(sum([await operator.count("rest_client_requests_total", method=method) for method in methods]))


def print_progress(text: str) -> None:
    """Print progress."""
    sys.stderr.write(f"bench: {text}\n")


async def _reported(cache: Informer[CoderControlPlane], names: Iterable[str]) -> None:
    """Wait until these objects have a status for their current generation."""
    left, done = set(names), asyncio.Event()

    def on_change(change: Change[CoderControlPlane]) -> None:
        if change.new is not None and change.new.status.observed_generation == change.new.metadata.generation:
            left.discard(change.key.name)
        if not left:
            done.set()

    cache.listen(on_change)
    async with asyncio.timeout(TIMEOUT):
        await done.wait()
