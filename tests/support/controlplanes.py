"""A control plane whose coderd is the stand-in, and an operator whose time stands still unless told."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.access_db import USERNAME, token_name
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.databases import CoderdDatabase, create_database
from tests.support.operators import running

EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
LICENSES = "/api/v2/licenses"
CONNECTION_URL = "CODER_PG_CONNECTION_URL"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Clock:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **spans: float) -> None:
        self.time += timedelta(**spans)


class Operator:
    """An operator at work on one control plane."""

    def __init__(self, runtime: Runtime, controller: Controller, key: Key, clock: Clock) -> None:
        self.runtime = runtime
        self._controller = controller
        self._key = key
        self._clock = clock

    async def wait_idle(self) -> None:
        """Wait until no pass is under way, none is waiting, and every event is written."""
        queue, recorder = self._controller.queue, self.runtime.recorder
        await eventually(lambda: not len(queue) and not queue._busy and recorder.idle, 30)

    async def reconcile(self) -> None:
        """Make one more pass, as after any change around the control plane, and wait for its end."""
        await self.wait_idle()
        self._controller.queue.add(self._key)
        await self.wait_idle()

    def reconciles(self) -> int:
        """How many passes have ended."""
        return sum(
            int(sample.value)
            for family in self.runtime.metrics.reconciles.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        )

    async def later(self, **spans: float) -> None:
        """Let time pass, and make one pass then."""
        await self.wait_idle()
        self._clock.advance(**spans)
        await self.reconcile()

    def requeue_after(self) -> float | None:
        """In how many seconds the operator means to look by itself."""
        timer = self._controller.queue._timers.get(self._key)
        return timer.when() - asyncio.get_running_loop().time() if timer else None

    def writes(self) -> int:
        """How many requests to the API server could have changed something."""
        return sum(
            int(sample.value)
            for family in self.runtime.metrics.requests.collect()
            for sample in family.samples
            if sample.name.endswith("_total") and sample.labels["method"] in WRITES
        )

    def metrics(self) -> str:
        return generate_latest(self.runtime.metrics.registry).decode()

    def crash(self) -> None:
        """Cut every pass short where it is."""
        for task in asyncio.all_tasks():
            if task.get_name().startswith(f"{self._controller.name} worker"):
                task.cancel()


class PlaneNamespace:
    """A control plane in a namespace, as its administrator and its users see it."""

    def __init__(self, client: Client, kubeconfig: Path, key: Key, coderd: CoderdServer, clock: Clock) -> None:
        self.client = client
        self.key = key
        self.coderd = coderd
        self.clock = clock
        self._kubeconfig = kubeconfig

    @asynccontextmanager
    async def operator(self, **options: Any) -> AsyncIterator[Operator]:
        """An operator that reaches the stand-in where it expects the Service."""
        built: list[Controller] = []

        def build(runtime: Runtime) -> Controller:
            built.append(wiring.build(runtime))
            return built[0]

        host = f"{self.key.name}.{self.key.namespace}.svc.cluster.local"
        routes = {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port)}
        options = {"connect_to": routes, "now": self.clock, **options}
        async with running(self._kubeconfig, [self.key.namespace], build, **options) as runtime:
            yield Operator(runtime, built[0], self.key, self.clock)

    async def make(self, **spec: Any) -> None:
        metadata = {"namespace": self.key.namespace, "name": self.key.name}
        await self.client.create(CONTROL_PLANE, {"metadata": metadata, "spec": spec})

    async def change(self, **spec: Any) -> None:
        """Change the spec; `None` removes a field."""
        await self.client.merge(CONTROL_PLANE, self.key, {"spec": spec})

    async def plane(self) -> CoderControlPlane:
        return await self.client.get(CONTROL_PLANE, self.key)

    async def serve(self, ready: int = 1, name: str = "") -> None:
        """Let the Deployment say that its pods are ready, as soon as it is there."""
        deployment = await eventually(lambda: self.find(DEPLOYMENT, name or self.key.name), 30)
        assert deployment is not None
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
        status = {"observedGeneration": deployment.metadata.generation, **counts}
        await self.client.merge(DEPLOYMENT, deployment.key, {"status": status}, "status")

    async def put_secret(self, secret: str, **values: str) -> None:
        """Make or replace a Secret."""
        metadata: Manifest = {"namespace": self.key.namespace, "name": secret}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
        try:
            await self.client.create(SECRET, {"metadata": metadata, "data": data})
        except errors.AlreadyExists:
            live = await self.client.get_manifest(SECRET, Key(self.key.namespace, secret))
            await self.client.replace(SECRET, {**live, "data": data})

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await self.client.delete(kind, await self.client.get(kind, Key(self.key.namespace, name)), unchanged=False)

    async def find(self, kind: Kind[Unstructured], name: str) -> Unstructured | None:
        try:
            return await self.client.get(kind, Key(self.key.namespace, name))
        except errors.NotFound:
            return None

    async def token(self, secret: str = "") -> str:
        """What is in the Secret of the operator's token; empty when there is none."""
        found = await self.find(SECRET, secret or f"{self.key.name}-operator-token")
        data = found.manifest.get("data", {}) if found else {}
        return base64.b64decode(data.get("token", "")).decode()

    async def condition(self, type: str, reason: str, status: str = "", within: float = 10) -> Condition:  # noqa: A002
        """The condition, as soon as it has this reason at the present generation."""

        async def check() -> Condition:
            plane = await self.plane()
            condition = find(plane.status.conditions, type)
            assert condition is not None, f"{type} is not told: {plane.status}"
            assert (condition.reason, condition.observed_generation) == (reason, plane.metadata.generation), condition
            assert status in ("", condition.status), condition
            return condition

        return await eventually(check, within)

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return {each.type: (each.status, each.reason) for each in (await self.plane()).status.conditions}

    async def events(self, reason: str = "") -> list[Manifest]:
        """What was told about the control plane, oldest first."""
        pages = self.client.list(EVENT, self.key.namespace)
        found = [Unstructured.decode(item).manifest async for page in pages for item in page.items]
        about = [each for each in found if each["regarding"]["name"] == self.key.name]
        return sorted(
            (each for each in about if reason in ("", each["reason"])), key=lambda each: str(each["eventTime"])
        )

    async def event(self, reason: str) -> Manifest:
        """The one event of that reason, as soon as it is there."""
        found = await eventually(lambda: self.events(reason))
        assert len(found) == 1, found
        return found[0]


@asynccontextmanager
async def plane_namespace(
    admin: Path,
    operator: Path,
    namespace: str,
    *,
    version: str = "2.36.1",
    database_url: str | None = None,
    name: str = "demo",
    clock: Clock | None = None,
) -> AsyncIterator[PlaneNamespace]:
    """A place for a control plane, with its coderd."""
    clock = clock or Clock()
    async with (
        CoderdServer(version, now=clock, database_url=database_url) as coderd,
        Http(load(admin), "administrator", Metrics()) as http,
    ):
        yield PlaneNamespace(Client(http, "administrator"), operator, Key(namespace, name), coderd, clock)


def value_of(metrics: str, name: str, /, **labels: str) -> float | None:
    """A sample of the metrics by its name and some of its labels."""
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def env(url: str) -> list[Manifest]:
    return [{"name": CONNECTION_URL, "value": url}]


async def operator_tokens(database: CoderdDatabase) -> list[tuple[str, str]]:
    """Id and name of the operator's tokens."""
    rows = await database.server.fetch(
        "SELECT api_keys.id, token_name FROM api_keys JOIN users ON users.id = user_id WHERE username = $1 ORDER BY 2",
        database.name,
        USERNAME,
    )
    return [(row[0], row[1]) for row in rows]


async def assert_one_token(demo: PlaneNamespace, database: CoderdDatabase) -> str:
    """The Secret holds the only token that the database has for this control plane, and coderd accepts it."""
    token = await demo.token()
    own = token_name(*demo.key)
    found = [identifier for identifier, name in await operator_tokens(database) if name in (own, f"{own}-2")]
    assert found == [token.partition("-")[0]]
    return token


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    """A database with coderd's tables."""
    return await create_database(postgres, "2.36.1")


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[PlaneNamespace]:
    """A control plane whose coderd has that database."""
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, database_url=database.url) as place:
        yield place
