"""A control plane with a provisioner and a workspace proxy in one namespace, and all three controllers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.errors import Unauthorized
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import HTTP_ROUTE, SECRET
from coder_k8s.kube.objects import Key, Kind, Manifest
from tests.support import eventually, objects
from tests.support.children import collect_garbage
from tests.support.clock import Clock
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens, plane_namespace
from tests.support.crashes import CrashPoint
from tests.support.databases import CoderdDatabase
from tests.support.objects import NAMESPACE
from tests.support.operators import Builder, Operator

BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build)
KINDS: tuple[tuple[Kind[Any], str], ...] = (
    (CONTROL_PLANE, "demo"),
    (PROVISIONER, "build"),
    (WORKSPACE_PROXY, "sydney"),
)
LEAKS = (("ProvisionerKeyLeaked", "build"), ("WorkspaceProxyLeaked", "sydney"), ("CleanupGivenUp", "demo"))
"""The events that name what is left, and the objects that they are about."""
FIRST, LAST = KINDS, tuple(reversed(KINDS))
"""The orders in which the control plane is deleted first, and last."""


class CombinedNamespace(PlaneNamespace):
    """A namespace with the three objects, and Coder with its database."""

    builders: tuple[Builder, ...] = BUILDERS
    children_kinds = tuple(kind for kind in controlplane.wiring.CHILDREN if kind is not HTTP_ROUTE)

    def __init__(self, place: PlaneNamespace, database: CoderdDatabase) -> None:
        super().__init__(place.client, place.kubeconfig, place.key, place.coderd, place.clock)
        self.state = place.coderd.state
        self.database = database
        self.access: Manifest = {}
        self.env = env(database.url)

    async def run_operator(self, at: int, *, before: bool) -> list[str] | None:
        """Run an operator until all objects are deleted, or it crashes; returns the requests unless it crashed."""
        crash_point = CrashPoint()
        crash_point.crash_at(at, before=before)
        operator = self.operator(interceptor=crash_point)

        async def over() -> bool:
            return operator.crashed or not [1 for each in KINDS if await self.find(*each) is not None]

        await operator.start()
        try:
            await eventually(over, 60)
            return None if operator.crashed else crash_point.seen
        finally:
            await operator.kill()

    async def apply(self) -> None:
        """Create all three objects, and wait until they are ready."""
        plane = {"controlPlaneRef": {"name": "demo"}}
        specs = ({"extraEnv": self.env, "operatorAccess": self.access}, plane, plane)
        for (kind, name), spec in zip(KINDS, specs, strict=True):
            await self.client.create(kind, {"metadata": {"namespace": self.namespace, "name": name}, "spec": spec})
        await self.roll_out()
        await eventually(self.has_everything, 30)
        for name in ("provisioner-build", "wsproxy-sydney"):
            await self.roll_out(name=name)

    async def has_everything(self) -> bool:
        made = await self.find(PROVISIONER, "build"), await self.find(WORKSPACE_PROXY, "sydney")
        return bool(made[0].status.provisioner_key_id and made[1].status.proxy_id)

    async def become_ready(self, operator: Operator) -> None:
        """Connect daemons and proxy, and advance the clock until that is noticed."""
        key = (await self.find(PROVISIONER, "build")).status.provisioner_key_name
        self.state.connect_daemon("build-0", key)
        self.state.set_proxy("sydney", "ok")
        await operator.wait_idle()
        self.clock.advance(seconds=121)
        for kind, name in KINDS:
            await self.set_annotations(kind, name, {"example.com/look": "again"})
            await eventually(partial(self._is_ready, kind, name), 30)

    async def _is_ready(self, kind: Kind[Any], name: str) -> bool:
        live = await self.find(kind, name)
        ready = find(live.status.conditions, "Ready")
        assert ready is not None, live
        assert ready.status == "True", live.status.conditions
        return True

    async def later(self, **spans: float) -> None:
        """Set the clock to a time after now, and let the operator reconcile all objects."""
        self.clock.time = datetime.now(UTC) + timedelta(**spans)
        for kind, name in KINDS:
            with suppress(errors.NotFound):
                await self.set_annotations(kind, name, {"example.com/look": str(spans)})

    async def delete_all(self, order: tuple[tuple[Kind[Any], str], ...] = FIRST) -> None:
        for kind, name in order:
            await self.delete(kind, name)

    async def all_gone(self, *kinds: tuple[Kind[Any], str], within: float = 15) -> None:
        """Wait until these objects, or all three, are deleted."""
        for kind, name in kinds or KINDS:
            await self.gone(kind, name, within)

    async def collect(self) -> None:
        """Delete objects whose owner is deleted, like garbage collection."""
        await collect_garbage(self.client, await self.children())

    async def is_accepted(self, token: str) -> bool:
        async with Connections() as connections:
            try:
                await Coderd(connections, self.coderd.url, token).me()
            except Unauthorized:
                return False
        return True

    async def left(self) -> set[str]:
        """The keys, registrations and tokens in Coder."""
        return {*self.state.keys, *self.state.proxies, *(name for _, name in await operator_tokens(self.database))}

    async def assert_nothing_left(self, token: str) -> None:
        assert await self.left() == set()
        assert not await self.is_accepted(token)
        assert [note for reason, name in LEAKS for note in await self.notes(reason, name)] == []

    async def notes(self, reason: str, name: str) -> list[str]:
        return [each["note"] for each in await self.events(reason, name)]

    async def delete_namespace(self) -> None:
        """Start the deletion of the namespace; the test deletes its content."""
        await objects.delete(self.client, NAMESPACE, Key("", self.namespace))

    async def delete_secrets(self) -> None:
        for secret in await objects.list_all(self.client, SECRET, self.namespace):
            await self.client.delete(SECRET, secret, unchanged=False)

    async def stay_idle(self, operator: Operator, seconds: float = 0.5) -> None:
        """Wait long enough for an unexpected action of the operator."""
        await operator.wait_idle()
        await asyncio.sleep(seconds)
        await operator.wait_idle()


@asynccontextmanager
async def combined_namespace(
    admin: Path, operator: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[CombinedNamespace]:
    clock = Clock.at_present()  # the clock of deletion timestamps
    async with plane_namespace(admin, operator, namespace, database_url=database.url, clock=clock) as place:
        place.coderd.state.install_license()
        yield CombinedNamespace(place, database)


@pytest.fixture
async def all_three(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[CombinedNamespace]:
    async with combined_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, database) as made:
        yield made
