"""Provisioners whose control planes are words in a status and a stand-in, and whose pods are played by hand."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import generate_latest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.names import derived
from coder_k8s.controllers.provisioner import wiring
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.state import StoredKey
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured, timestamp
from tests.support import eventually
from tests.support.operators import running

EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
WRITES = ("POST", "PUT", "PATCH", "DELETE")
NAME = "build"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Clock:
    """A time that moves when told; it begins with the present, because the API server goes by that."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **spans: float) -> None:
        self.time += timedelta(**spans)


class Digits(Random):
    """What keys beside others are named by: build-0002, then build-0004 and so on. A step is decided on twice, on what
    is known and on the present, and each time a name is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self._next = count(1)

    def getrandbits(self, bits: int, /) -> int:
        return next(self._next)


class Operator:
    """The controller of provisioners at work."""

    def __init__(self, runtime: Runtime, controller: Controller) -> None:
        self.runtime = runtime
        self._controller = controller

    async def wait_idle(self) -> None:
        """Wait until no pass is under way and none is waiting, or due."""
        queue, loop = self._controller.queue, asyncio.get_running_loop()

        def rests() -> bool:
            due = any(timer.when() <= loop.time() for timer in queue._timers.values())
            return not (due or len(queue) or queue._busy) and self.runtime.recorder.idle

        await eventually(rests, 60)

    async def reconcile(self, *keys: Key) -> None:
        """Make one more pass over each, as when its time has come, and wait for the end."""
        await self.wait_idle()
        for key in keys:
            self._controller.queue.add(key)
        await self.wait_idle()

    def requeue_after(self, key: Key) -> float | None:
        """In how many seconds the operator means to look by itself."""
        timer = self._controller.queue._timers.get(key)
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


class Plane:
    """A control plane: what its status says, and its coderd with a second organization called acme."""

    def __init__(self, name: str, token: str, coderd: CoderdServer, acme: CoderdServer) -> None:
        self.name = name
        self.token = token
        self.coderd = coderd
        self.acme = acme
        self.before: Callable[[web.Request], None] = lambda request: None
        """What happens before coderd sees a request."""
        coderd._runner.app.middlewares.insert(0, self._listen)

    @property
    def keys(self) -> dict[str, StoredKey]:
        return self.coderd.state.keys

    @property
    def heard(self) -> set[str]:
        """Every token and key that somebody showed."""
        return self.coderd.state.heard | self.acme.state.heard

    def asked(self, method: str = "", part: str = "") -> int:
        """How many requests there were of a kind."""
        return sum(
            count
            for (sent, route), count in self.coderd.state.requests.items()
            if method in ("", sent) and part in route
        )

    @web.middleware
    async def _listen(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.before(request)
        key = request.headers.get("Coder-Provisioner-Daemon-Key", "")
        elsewhere = key in [each.secret for each in self.acme.state.keys.values()] or any(
            f"/organizations/{name}" in request.path for name in ("acme", self.acme.state.organization_id)
        )
        return await self._forward(request) if elsewhere else await handler(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        path = request.path_qs.replace("/organizations/acme", "/organizations/default")
        headers = {name: request.headers[name] for name in request.headers if name.startswith("Coder-")}
        content = await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, self.acme.url + path, headers=headers, data=content) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)


class ProvisionerNamespace:
    """A namespace with control planes and provisioners, as its users see it."""

    def __init__(self, client: Client, kubeconfig: Path, namespace: str, clock: Clock) -> None:
        self.client = client
        self.namespace = namespace
        self.clock = clock
        self.planes: dict[str, Plane] = {}
        self.rng = Digits()
        self._kubeconfig = kubeconfig

    @property
    def plane(self) -> Plane:
        """The first control plane."""
        return next(iter(self.planes.values()))

    @property
    def keys(self) -> dict[str, StoredKey]:
        """The keys in its coderd."""
        return self.plane.keys

    def key(self, name: str = NAME) -> Key:
        return Key(self.namespace, name)

    @asynccontextmanager
    async def operator(self, **options: Any) -> AsyncIterator[Operator]:
        """An operator that reaches the stand-ins where it expects the Services."""
        built: list[Controller] = []

        def build(runtime: Runtime) -> Controller:
            built.append(wiring.build(runtime))
            return built[0]

        routes = {
            Endpoint(f"{name}.{self.namespace}.svc.cluster.local", port): Endpoint("127.0.0.1", plane.coderd.port)
            for name, plane in self.planes.items()
            for port in (80, 8080)
        }
        options = {"connect_to": routes, "now": self.clock, "rng": self.rng, **options}
        async with running(self._kubeconfig, [self.namespace], build, **options) as runtime:
            yield Operator(runtime, built[0])

    async def make_plane(self, name: str, **status: Any) -> None:
        """A control plane that is ready, unless the status says otherwise."""
        await self.put_secret(f"{name}-operator-token", token=self.planes[name].token)
        metadata = {"namespace": self.namespace, "name": name}
        await self.client.create(CONTROL_PLANE, {"metadata": metadata, "spec": {"image": "coder:v2.36.1"}})
        ready = {
            "url": f"http://{name}.{self.namespace}.svc.cluster.local:80",
            "image": "coder:v2.36.1",
            "operatorAccessReady": True,
            "operatorTokenSecretRef": {"name": f"{name}-operator-token", "key": "token"},
            **self.fresh("entitled"),
        }
        await self.say(name, **{**ready, **status})

    def fresh(self, entitlement: str) -> Manifest:
        """What a control plane says about its license now."""
        return {
            "externalProvisionerDaemonsEntitlement": entitlement,
            "entitlementsLastChecked": timestamp(self.clock()),
        }

    async def say(self, plane: str, **status: Any) -> None:
        """Change the status of a control plane."""
        await self.client.merge(CONTROL_PLANE, Key(self.namespace, plane), {"status": status}, "status")

    async def make(self, name: str = NAME, annotations: dict[str, str] | None = None, **spec: Any) -> CoderProvisioner:
        metadata = {"namespace": self.namespace, "name": name, "annotations": annotations or {}}
        spec = {"controlPlaneRef": {"name": self.plane.name}, **spec}
        return await self.client.create(PROVISIONER, {"metadata": metadata, "spec": spec})

    async def change(self, name: str = NAME, **spec: Any) -> None:
        """Change the spec; `None` removes a field."""
        await self.client.merge(PROVISIONER, self.key(name), {"spec": spec})

    async def annotate(self, name: str = NAME, **annotations: str | None) -> None:
        named = {f"coder.com/{word.replace('_', '-')}": value for word, value in annotations.items()}
        await self.client.merge(PROVISIONER, self.key(name), {"metadata": {"annotations": named}})

    async def get(self, name: str = NAME) -> CoderProvisioner:
        return await self.client.get(PROVISIONER, self.key(name))

    async def find(self, kind: Kind[Any], name: str) -> Any:
        try:
            return await self.client.get(kind, Key(self.namespace, name))
        except errors.NotFound:
            return None

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await self.client.delete(kind, await self.client.get(kind, Key(self.namespace, name)), unchanged=False)

    async def put_secret(self, secret: str, **values: str) -> None:
        """Make or replace the content of a Secret."""
        data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
        try:
            await self.client.create(SECRET, {"metadata": {"namespace": self.namespace, "name": secret}, "data": data})
        except errors.AlreadyExists:
            live = await self.client.get_manifest(SECRET, Key(self.namespace, secret))
            await self.client.replace(SECRET, {**live, "data": data})

    async def stored(self, secret: str = f"{NAME}-provisioner-key", field: str = "key") -> str:
        """What the Secret of a key holds."""
        found = await self.find(SECRET, secret)
        data = found.manifest.get("data", {}) if found else {}
        return base64.b64decode(data.get(field, "")).decode()

    async def deployment(self, name: str = f"provisioner-{NAME}") -> Unstructured:
        return await self.client.get(DEPLOYMENT, Key(self.namespace, name))

    async def roll_out(self, name: str = NAME, ready: int = 1, plane: str = "") -> None:
        """Let the Deployment be done at its present generation, with daemons on the present key and on no other."""
        live = await eventually(lambda: self.find(DEPLOYMENT, derived(name, prefix="provisioner-")))
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
        status = {"observedGeneration": live.metadata.generation, **counts}
        await self.client.merge(DEPLOYMENT, live.key, {"status": status}, "status")
        key = (await self.get(name)).status.provisioner_key_name
        state = (self.planes[plane] if plane else self.plane).coderd.state
        for daemon in [each for each in state.daemons.values() if each.name.startswith(f"{name}-")]:
            state.disconnect_daemon(daemon.id)
        for number in range(ready):
            state.connect_daemon(f"{name}-{number}", key)

    async def condition(
        self,
        type: str,  # noqa: A002 - Kubernetes' own word
        reason: str,
        status: str = "",
        *,
        name: str = NAME,
        within: float = 10,
    ) -> Condition:
        """The condition, as soon as it has this reason at the present generation."""

        async def check() -> Condition:
            found = await self.get(name)
            condition = find(found.status.conditions, type)
            assert condition is not None, f"{type} is not told: {found.status}"
            assert (condition.reason, condition.observed_generation) == (reason, found.metadata.generation), condition
            assert status in ("", condition.status), condition
            return condition

        return await eventually(check, within)

    async def conditions(self, name: str = NAME) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return {each.type: (each.status, each.reason) for each in (await self.get(name)).status.conditions}

    async def events(self, reason: str = "", name: str = NAME) -> list[Manifest]:
        """What was told about a provisioner, oldest first."""
        pages = self.client.list(EVENT, self.namespace)
        found = [Unstructured.decode(item).manifest async for page in pages for item in page.items]
        about = [each for each in found if each["regarding"]["name"] == name and reason in ("", each["reason"])]
        return sorted(about, key=lambda each: str(each["eventTime"]))

    async def ready(self, operator: Operator, name: str = NAME, ready: int = 1) -> CoderProvisioner:
        """The provisioner when all is well with it."""
        await self.condition("ProvisionerKeyReady", "KeyReady", "True", name=name)
        await operator.wait_idle()
        await self.roll_out(name, ready)
        self.clock.advance(seconds=11)
        await operator.reconcile(self.key(name))
        await self.condition("Ready", "AllPartsReady", name=name)
        await operator.wait_idle()
        return await self.get(name)


@asynccontextmanager
async def provisioner_namespace(
    admin: Path, operator: Path, namespace: str, planes: Sequence[str] = ("demo",), version: str = "2.36.1"
) -> AsyncIterator[ProvisionerNamespace]:
    """A yard with licensed coderds; the control planes that they belong to are yet to be made."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Http(load(admin), "user", Metrics()))
        place = ProvisionerNamespace(Client(http, "user"), operator, namespace, clock)
        for name in planes:
            coderd, acme = CoderdServer(version, now=clock), CoderdServer(version, now=clock)
            for server in (coderd, acme):
                server.state.install_license()
            token = acme.state.add_token(acme.state.owner, coderd.state.token)
            place.planes[name] = Plane(name, token, coderd, acme)
            await stack.enter_async_context(coderd)
            await stack.enter_async_context(acme)
        yield place
