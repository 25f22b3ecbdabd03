"""Crashes an operator at a chosen request, and simulates the pods of the cluster."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Unstructured
from tests.support import objects
from tests.support.children import collect_garbage
from tests.support.clock import Clock
from tests.support.interceptor import Interceptor, Request
from tests.support.objects import value_of_secret
from tests.support.operators import Operator
from tests.support.rotations import RotationNamespace, rotation_namespace, secret_of

T = TypeVar("T")
STEP = 61.0
"""Seconds between two periodic reconciles."""
MAX_RECONCILES = 12
"""An upper bound for every scenario."""


def every(request: str) -> bool:
    return True


class CrashPoint(Interceptor):
    """Counts requests, and crashes the operator immediately before or after one of them.

    Counted are requests to coderd and writes to Kubernetes. A crash at a read is equivalent to a crash between two of
    these. Writes of events are not counted, because they run concurrently and would make the order random.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._number = self._count = 0
        self._among: Callable[[str], bool] = every
        self._prefix = ""
        self._before = False

    def crash_on(self, prefix: str, *, before: bool = False) -> None:
        """Crash at the next request with this prefix."""
        self.crash_at(0, before=before)
        self._prefix = prefix

    def crash_at(self, number: int, *, before: bool = False, among: Callable[[str], bool] | None = None) -> None:
        """Crash at this request, counted from one, or at this one among some; zero disables it."""
        self.seen.clear()
        self._number, self._prefix, self._before = number, "", before
        self._count, self._among = 0, among or every

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        if request.is_kubernetes and (request.method == "GET" or "/events" in request.target):
            return await super().intercept(request, send)
        await self._block_if_crashed()
        self.seen.append(str(request))
        counted = self._among(self.seen[-1])
        self._count += counted
        numbered = counted and self._count == self._number
        last = numbered or bool(self._prefix and self.seen[-1].startswith(self._prefix))
        if last and self._before:
            self.crashed.set()
        answer = await super().intercept(request, send)
        if last:
            self.crashed.set()
            await self._block_if_crashed()
        return answer


class Pods:
    """Simulates the controllers of Kubernetes, and daemons that disconnect some time after their successors connect."""

    def __init__(self, site: RotationNamespace) -> None:
        self._site = site
        self._daemons: list[tuple[State, str]] = []
        self._leaving: list[tuple[State, str]] = []
        self._may_lose_key: set[str] = set()

    async def sync(self) -> bool:
        """Take one step; return whether there was one."""
        for state, daemon in self._leaving:
            if daemon in state.daemons:
                state.disconnect_daemon(daemon)
        left, self._leaving = bool(self._leaving), []
        if await self._site.provisioner() is None:
            return await collect_garbage(self._site.client, await self._site.children()) or left
        deployment = await self._site.find(DEPLOYMENT, f"provisioner-{self._site.name}")
        if deployment is None or is_rolled_out(deployment):
            return left
        secret = await self._site.find(SECRET, secret_of(deployment.manifest["spec"]["template"]))
        if secret is None:
            return left  # the new pods wait for the Secret, and the old ones stay
        self._leaving, self._daemons = self._daemons, []
        replicas = deployment.manifest["spec"]["replicas"]
        for _ in range(replicas):
            self._log_in(value_of_secret(secret, "key"))
        await objects.roll_out(self._site.client, deployment.key, replicas)
        return True

    def orphans(self) -> list[str]:
        """Daemons whose key was deleted while they were connected with it."""
        known = [each for each in self._daemons + self._leaving if each[1] not in self._may_lose_key]
        return [daemon for state, daemon in known if daemon not in state.daemons]

    def allow_key_loss(self) -> None:
        """Do not count daemons that are connected now as orphans, because a user deletes their key."""
        self._may_lose_key |= {daemon for _, daemon in self._daemons + self._leaving}

    def _log_in(self, secret: str) -> None:
        for coderd in self._site.coderds.values():
            for place, key in coderd.state.keys.items():
                if key.secret == secret:
                    daemon = coderd.state.connect_daemon(f"pod-{key.id[:8]}", place)
                    self._daemons.append((coderd.state, daemon))


def is_rolled_out(deployment: Unstructured) -> bool:
    """Whether its controller has observed the current generation."""
    status = deployment.manifest.get("status") or {}
    return bool(status.get("observedGeneration", 0) >= deployment.metadata.generation)


class CrashRun:
    """An operator that crashes in the middle of a reconcile, and the simulated pods of its cluster."""

    crash_point: CrashPoint
    operator: Operator

    def __init__(self, site: RotationNamespace) -> None:
        self.site = site
        self.pods = Pods(site)

    async def start(self) -> None:
        """Start an operator."""
        self.crash_point = CrashPoint()
        self.operator = self.site.operator(interceptor=self.crash_point)
        await self.operator.start()

    async def restart(self) -> None:
        await self.operator.kill()
        await self.start()

    def enqueue(self, after: float = STEP) -> None:
        """Advance the clock, then reconcile the provisioner."""
        self.site.clock.advance(seconds=after)
        self.operator.enqueue(self.site.key)

    async def wait_steady(self, replaced: str = "") -> bool:
        """Advance the clock until the state is steady and this key is replaced; False if the operator crashed."""
        for _ in range(MAX_RECONCILES):
            if not await self.operator.wait_idle():
                return False
            assert not self.pods.orphans(), "a key was deleted while a daemon was connected with it"
            if not await self.pods.sync() and not await self._differences(replaced):
                return await self.operator.wait_idle()  # another reconcile may have run and crashed
            if not await self.operator.wait_idle():
                return False
            self.enqueue()
        raise AssertionError(await self._differences(replaced))

    async def assert_no_writes(self) -> None:
        """Assert that the operator only reads, after it has observed that the last daemon disconnected."""
        for _ in range(3):
            self.crash_point.crash_at(0)
            self.enqueue()
            assert await self.operator.wait_idle()
        assert all(request.startswith("GET ") for request in self.crash_point.seen), self.crash_point.seen

    async def _differences(self, replaced: str) -> list[str]:
        found = await self.site.differences()
        return found or [f"{each.key.name} is still used" for each in self.site.found() if each.key.id == replaced]


@pytest.fixture
async def trial(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[CrashRun]:
    """A namespace without a provisioner, and an operator that can crash."""
    async with rotation_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, Clock()) as place:
        trial = CrashRun(place)
        await trial.start()
        yield trial
        await trial.operator.kill()
