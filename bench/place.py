"""A cluster of its own for each measurement, with an operator in it and somebody who uses it."""

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
from tests.support.installation import NAMESPACE, install_crds, write_operator_kubeconfig

CHILDREN: tuple[Kind[Unstructured], ...] = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT, SERVICE)
MANY = "many"
"""The namespace of everything that is measured."""
AT_ONCE = 16
PATIENCE = 600.0
ALONE: Manifest = {"operatorAccess": {"disabled": True}}
"""A control plane that comes to rest without a coderd."""

T = TypeVar("T", bound=Object)
Item = TypeVar("Item")


@dataclass(frozen=True)
class CoderdTarget:
    """A cluster with our kinds, its administrator, and the kubeconfig of the operator's ServiceAccount."""

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
            operator.stop()  # which lets the Lease go
        finally:
            operator.kill()
        if operator.defects:
            raise RuntimeError(f"the operator stumbled: {operator.defects[0]}")

    @asynccontextmanager
    async def informer(self, kind: Kind[T], labels: str = "") -> AsyncIterator[Informer[T]]:
        """What the administrator sees of a kind, complete when the context begins."""
        informer = Informer(self.admin, kind, [MANY], metrics=Metrics(), labels=labels)
        running = asyncio.create_task(informer.run())
        try:
            await informer.synced.wait()
            yield informer
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def make(self, kind: Kind[Any], manifests: Iterable[Manifest]) -> None:
        """Create objects, some at the same time."""
        await each(manifests, lambda manifest: self.admin.create(kind, manifest))

    async def converge(self, manifests: list[Manifest]) -> None:
        """Create control planes, and return when the operator, or whoever plays it, is done with each."""
        names = [manifest["metadata"]["name"] for manifest in manifests]
        async with self.informer(CONTROL_PLANE) as cache:
            waiting = asyncio.create_task(_reported(cache, names))
            await self.make(CONTROL_PLANE, manifests)
            await waiting

    async def roll_out(self, deployment: Key, ready: int = 1) -> None:
        """Let a Deployment say that its pods are ready."""
        generation = (await self.admin.get(DEPLOYMENT, deployment)).metadata.generation
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
        status = {"observedGeneration": generation, **counts}
        await self.admin.merge(DEPLOYMENT, deployment, {"status": status}, "status")

    async def check_children(self, number: int) -> None:
        """A benchmark of something that did not happen would be worthless."""
        for kind in CHILDREN:
            found = sum([len(page.items) async for page in self.admin.list(kind, MANY)])
            if found < number:
                raise RuntimeError(f"there are {found} {kind.plural} of {number}")


@asynccontextmanager
async def place() -> AsyncIterator[CoderdTarget]:
    with tempfile.TemporaryDirectory(prefix="coder-k8s-bench-") as name, Cluster(Path(name) / "cluster") as cluster:
        install_crds(cluster)
        cluster.kubectl("create", "namespace", MANY)
        kubeconfig = write_operator_kubeconfig(cluster, Path(name) / "kubeconfig")
        async with Http(load(cluster.kubeconfig), "bench", Metrics()) as http:
            yield CoderdTarget(cluster, Path(name), kubeconfig, Client(http, "somebody"), itertools.count())


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Do the same to all, so many at the same time."""
    left = iter(items)

    async def take() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())


async def at_rate(per_second: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do something again and again, so often that the rate is kept on average, until cancelled."""
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
    await eventually(operator.leads, PATIENCE)


async def at_rest(operator: OperatorProcess, number: int, controller: str = "codercontrolplane") -> None:
    """Return when so many passes were made and nothing is left to do."""
    labels = {"controller": controller}

    async def idle() -> bool:
        return (
            await operator.metric("controller_runtime_reconcile_total", **labels) >= number
            and await operator.metric("workqueue_depth", **labels) == 0
            and await operator.metric("controller_runtime_active_workers", **labels) == 0
        )

    await eventually(idle, PATIENCE)


async def writes(operator: OperatorProcess) -> int:
    """How many requests of the operator could have changed something but its Lease, the only thing that it puts."""
    methods = ("POST", "PATCH", "DELETE")
    return int(sum([await operator.count("rest_client_requests_total", method=method) for method in methods]))


def say(words: str) -> None:
    """Progress, for whoever waits."""
    sys.stderr.write(f"bench: {words}\n")


async def _reported(cache: Informer[CoderControlPlane], names: Iterable[str]) -> None:
    """Return when these have a status about their present spec, which the operator writes last."""
    left, done = set(names), asyncio.Event()

    def on_change(change: Change[CoderControlPlane]) -> None:
        if change.new is not None and change.new.status.observed_generation == change.new.metadata.generation:
            left.discard(change.key.name)
        if not left:
            done.set()

    cache.listen(on_change)
    async with asyncio.timeout(PATIENCE):
        await done.wait()
