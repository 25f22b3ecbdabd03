"""A control plane with a provisioner and a workspace proxy, as one file would hold them, and all three controllers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections, Endpoint
from coder_k8s.coderd.errors import Unauthorized
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.children import collect_garbage, managed
from tests.support.controlplanes import Clock, PlaneNamespace, env, operator_tokens, plane_namespace
from tests.support.crashes import CrashPoint, crashable
from tests.support.databases import CoderdDatabase
from tests.support.idle import idle
from tests.support.operators import running

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
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


class CombinedNamespace:
    """The file, the namespace that it is applied to, and Coder with its database."""

    def __init__(self, place: PlaneNamespace, database: CoderdDatabase) -> None:
        self.place = place
        self.client = place.client
        self.state = place.coderd.state
        self.database = database
        self.namespace = place.key.namespace
        self.access: Manifest = {}
        self.env = env(database.url)

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        host = f"demo.{self.namespace}.svc.cluster.local"
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.place.coderd.port)}

    @asynccontextmanager
    async def operator(self, **options: Any) -> AsyncIterator[Runtime]:
        options = {"connect_to": self.routes, "now": self.place.clock, **options}
        async with running(self.place._kubeconfig, [self.namespace], *BUILDERS, **options) as runtime:
            yield runtime

    async def live(self, at: int, *, before: bool) -> list[str] | None:
        """Let an operator work until all objects are gone, or it dies at a request; the requests if it lives."""
        crash_point = CrashPoint()
        crash_point.crash_at(at, before=before)
        place = self.place._kubeconfig, [self.namespace], self.routes, self.place.clock, crash_point
        async with AsyncExitStack() as stack:
            for build in BUILDERS:
                await stack.enter_async_context(crashable(*place, build))

            async def over() -> bool:
                return crash_point.crashed.is_set() or not [1 for each in KINDS if await self.find(*each) is not None]

            await eventually(over, 60)
            return None if crash_point.crashed.is_set() else crash_point.seen

    async def apply(self) -> None:
        """Make all three objects, and wait until they are ready."""
        plane = {"controlPlaneRef": {"name": "demo"}}
        specs = ({"extraEnv": self.env, "operatorAccess": self.access}, plane, plane)
        for (kind, name), spec in zip(KINDS, specs, strict=True):
            await self.client.create(kind, {"metadata": {"namespace": self.namespace, "name": name}, "spec": spec})
        await self.place.serve()
        await eventually(self.has_everything, 30)
        for name in ("provisioner-build", "wsproxy-sydney"):
            await self.place.serve(name=name)

    async def has_everything(self) -> bool:
        made = await self.find(PROVISIONER, "build"), await self.find(WORKSPACE_PROXY, "sydney")
        return bool(made[0].status.provisioner_key_id and made[1].status.proxy_id)

    async def become_ready(self, runtime: Runtime) -> None:
        """Let daemons and proxy connect, and time pass until that is noticed."""
        key = (await self.find(PROVISIONER, "build")).status.provisioner_key_name
        self.state.connect_daemon("build-0", key)
        self.state.set_proxy("sydney", "ok")
        await idle(runtime)
        self.place.clock.advance(seconds=121)
        for kind, name in KINDS:
            await self.annotate(kind, name, {"example.com/look": "again"})
            await eventually(partial(self._is_ready, kind, name), 30)

    async def _is_ready(self, kind: Kind[Any], name: str) -> bool:
        live = await self.find(kind, name)
        ready = find(live.status.conditions, "Ready")
        assert ready is not None, live
        assert ready.status == "True", live.status.conditions
        return True

    async def annotate(self, kind: Kind[Any], name: str, annotations: dict[str, str | None]) -> None:
        await self.client.merge(kind, Key(self.namespace, name), {"metadata": {"annotations": annotations}})

    async def later(self, **spans: float) -> None:
        """Let time pass since now, by which the API server goes, and the operator look at all objects."""
        self.place.clock.time = datetime.now(UTC) + timedelta(**spans)
        for kind, name in KINDS:
            with suppress(errors.NotFound):
                await self.annotate(kind, name, {"example.com/look": str(spans)})

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await self.place.delete(kind, name)

    async def delete_all(self, order: tuple[tuple[Kind[Any], str], ...] = FIRST) -> None:
        for kind, name in order:
            await self.delete(kind, name)

    async def find(self, kind: Kind[Any], name: str) -> Any:
        try:
            return await self.client.get(kind, Key(self.namespace, name))
        except errors.NotFound:
            return None

    async def gone(self, *kinds: tuple[Kind[Any], str], within: float = 15) -> None:
        for kind, name in kinds or KINDS:

            async def check(kind: Kind[Any] = kind, name: str = name) -> bool:
                return await self.find(kind, name) is None

            await eventually(check, within)

    async def collect(self) -> None:
        """Remove what had an owner, as Kubernetes does."""
        kinds = [kind for kind in controlplane.wiring.CHILDREN if kind.name != "HTTPRoute"]
        await collect_garbage(self.client, await managed(self.client, kinds, [self.namespace]))

    async def token(self) -> str:
        return await self.place.token()

    async def is_accepted(self, token: str) -> bool:
        async with Connections() as connections:
            try:
                await Coderd(connections, self.place.coderd.url, token).me()
            except Unauthorized:
                return False
        return True

    async def left(self) -> set[str]:
        """What works in Coder: keys, registrations and tokens."""
        return {*self.state.keys, *self.state.proxies, *(name for _, name in await operator_tokens(self.database))}

    async def assert_nothing_left(self, token: str) -> None:
        assert await self.left() == set()
        assert not await self.is_accepted(token)
        assert [note for reason, name in LEAKS for note in await self.notes(reason, name)] == []

    async def notes(self, reason: str, name: str) -> list[str]:
        pages = self.client.list(EVENT, self.namespace)
        found = [Unstructured.decode(item).manifest async for page in pages for item in page.items]
        return [each["note"] for each in found if (each["reason"], each["regarding"]["name"]) == (reason, name)]

    async def note(self, reason: str, name: str) -> str:
        found = await eventually(lambda: self.notes(reason, name))
        return found[-1]

    async def tear_down(self) -> None:
        """Begin to delete the namespace; a test plays the controller that empties it."""
        await self.client.delete(NAMESPACE, await self.client.get(NAMESPACE, Key("", self.namespace)), unchanged=False)

    async def drop_secrets(self) -> None:
        pages = self.client.list(SECRET, self.namespace)
        for secret in [Unstructured.decode(item) async for page in pages for item in page.items]:
            await self.client.delete(SECRET, secret, unchanged=False)

    async def rest(self, runtime: Runtime, seconds: float = 0.5) -> None:
        """Give the operator time for what it should not do."""
        await idle(runtime)
        await asyncio.sleep(seconds)
        await idle(runtime)


@asynccontextmanager
async def combined_namespace(
    admin: Path, operator: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[CombinedNamespace]:
    clock = Clock()
    clock.time = datetime.now(UTC)  # by which the API server says when an object was deleted
    async with plane_namespace(admin, operator, namespace, database_url=database.url, clock=clock) as place:
        place.coderd.state.install_license()
        yield CombinedNamespace(place, database)


@pytest.fixture
async def all_three(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[CombinedNamespace]:
    async with combined_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, database) as made:
        yield made
