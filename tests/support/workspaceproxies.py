"""A namespace with workspace proxies, in which a test plays the user, the pods and Coder."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.workspaceproxy import wiring
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.records import Proxy
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
from tests.support.operators import running

EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
FINALIZER = "coder.com/workspace-proxy-cleanup"
NAME = "sydney"
PLANE = "demo"
CREDENTIALS = "coder-session"
PROXIES = "/api/v2/workspaceproxies"
ONE = "/api/v2/workspaceproxies/{name}"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Clock:
    """A time that moves when told; it begins with the present, because the API server goes by that."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.time


class Operator:
    """The controller of workspace proxies at work."""

    def __init__(self, runtime: Runtime, controller: Controller, clock: Clock, key: Key) -> None:
        self.runtime = runtime
        self._controller = controller
        self._clock = clock
        self._key = key

    async def wait_idle(self) -> None:
        """Wait until no pass is under way and none is waiting."""
        queue = self._controller.queue
        await eventually(lambda: not len(queue) and not queue._busy and self.runtime.recorder.idle, 60)

    async def later(self, **spans: float) -> None:
        """Let time pass and make one more pass, as when its time has come."""
        await self.wait_idle()
        self._clock.time += timedelta(**spans)
        self._controller.queue.add(self._key)
        await self.wait_idle()

    def requeue_after(self, key: Key) -> float:
        """In how many seconds the operator means to look by itself."""
        timer = self._controller.queue._timers[key]
        return timer.when() - asyncio.get_running_loop().time()

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


class ProxyNamespace:
    """A namespace, a Coder with a license, and credentials for it in a Secret."""

    def __init__(self, client: Client, kubeconfig: Path, namespace: str, coderd: CoderdServer, clock: Clock) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.coderd = coderd
        self.clock = clock

    @property
    def key(self) -> Key:
        return Key(self.namespace, NAME)

    @property
    def proxies(self) -> dict[str, Proxy]:
        """What is registered, by name."""
        return self.coderd.state.proxies

    @property
    def bootstrap(self) -> Manifest:
        return {"coderURL": self.coderd.url, "credentialsSecretRef": {"name": CREDENTIALS}}

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        """Where the Service of the control plane leads."""
        host = f"{PLANE}.{self.namespace}.svc.cluster.local"
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port)}

    @asynccontextmanager
    async def operator(self, **options: Any) -> AsyncIterator[Operator]:
        built: list[Controller] = []

        def build(runtime: Runtime) -> Controller:
            built.append(wiring.build(runtime))
            return built[0]

        options = {"connect_to": self.routes, "now": self.clock, **options}
        async with running(self.kubeconfig, [self.namespace], build, **options) as runtime:
            yield Operator(runtime, built[0], self.clock, self.key)

    async def make(self, name: str = NAME, **spec: Any) -> CoderWorkspaceProxy:
        """A workspace proxy, registered by the given credentials unless the spec says otherwise."""
        written = {
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": spec or {"bootstrap": self.bootstrap},
        }
        return await self.client.create(WORKSPACE_PROXY, written)

    async def make_plane(self, **status: Any) -> None:
        """A control plane whose coderd is the stand-in, and to which the operator has access."""
        await self.put_secret(f"{PLANE}-operator-token", token=self.coderd.state.token)
        metadata = {"namespace": self.namespace, "name": PLANE}
        await self.client.create(CONTROL_PLANE, {"metadata": metadata, "spec": {"image": "coder:v2.36.1"}})
        ready = {
            "url": f"http://{PLANE}.{self.namespace}.svc.cluster.local:80",
            "image": "coder:v2.36.1",
            "operatorAccessReady": True,
            "operatorTokenSecretRef": {"name": f"{PLANE}-operator-token", "key": "token"},
        }
        await self.say_plane(**{**ready, **status})

    async def say_plane(self, **status: Any) -> None:
        await self.client.merge(CONTROL_PLANE, Key(self.namespace, PLANE), {"status": status}, "status")

    async def change(self, name: str = NAME, **spec: Any) -> None:
        """Change the spec; `None` removes a field."""
        await self.client.merge(WORKSPACE_PROXY, Key(self.namespace, name), {"spec": spec})

    async def get(self, name: str = NAME) -> CoderWorkspaceProxy:
        return await self.client.get(WORKSPACE_PROXY, Key(self.namespace, name))

    async def find(self, kind: Kind[Any], name: str) -> Any:
        try:
            return await self.client.get(kind, Key(self.namespace, name))
        except errors.NotFound:
            return None

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await self.client.delete(kind, await self.client.get(kind, Key(self.namespace, name)), unchanged=False)

    async def gone(self, kind: Kind[Any], name: str, within: float = 10) -> None:
        async def check() -> bool:
            return await self.find(kind, name) is None

        await eventually(check, within)

    async def put_secret(self, secret: str, **values: str) -> None:
        """Make or replace the content of a Secret."""
        data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
        try:
            await self.client.create(SECRET, {"metadata": {"namespace": self.namespace, "name": secret}, "data": data})
        except errors.AlreadyExists:
            live = await self.client.get_manifest(SECRET, Key(self.namespace, secret))
            await self.client.replace(SECRET, {**live, "data": data})

    async def token(self, secret: str = f"{NAME}-proxy-token") -> str:
        """What the Secret of a token holds; empty when there is none."""
        found = await self.find(SECRET, secret)
        data = found.manifest.get("data", {}) if found else {}
        return base64.b64decode(data.get("token", "")).decode()

    async def deployment(self, name: str = f"wsproxy-{NAME}") -> Unstructured:
        async def check() -> Unstructured | None:
            found: Unstructured | None = await self.find(DEPLOYMENT, name)
            return found

        found = await eventually(check)
        assert found is not None
        return found

    async def roll_out(self, name: str = f"wsproxy-{NAME}", ready: int = 1) -> None:
        """Let the Deployment be done at its present generation."""
        live = await self.deployment(name)
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
        status = {"observedGeneration": live.metadata.generation, **counts}
        await self.client.merge(DEPLOYMENT, live.key, {"status": status}, "status")

    async def condition(self, type: str, reason: str, status: str = "", name: str = NAME) -> Condition:  # noqa: A002
        """The condition, as soon as it has this reason at the present generation."""

        async def check() -> Condition:
            found = await self.get(name)
            condition = find(found.status.conditions, type)
            assert condition is not None, f"{type} is not told: {found.status}"
            assert (condition.reason, condition.observed_generation) == (reason, found.metadata.generation), condition
            assert status in ("", condition.status), condition
            return condition

        return await eventually(check)

    async def conditions(self, name: str = NAME) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return {each.type: (each.status, each.reason) for each in (await self.get(name)).status.conditions}

    async def events(self, reason: str = "", name: str = NAME) -> list[Manifest]:
        """What was told about a workspace proxy, oldest first."""
        pages = self.client.list(EVENT, self.namespace)
        found = [Unstructured.decode(item).manifest async for page in pages for item in page.items]
        about = [each for each in found if each["regarding"]["name"] == name and reason in ("", each["reason"])]
        return sorted(about, key=lambda each: str(each["eventTime"]))

    async def event(self, reason: str, name: str = NAME) -> str:
        """What an event says, as soon as it is there."""
        found = await eventually(lambda: self.events(reason, name))
        return str(found[-1]["note"])

    async def ready(self, operator: Operator) -> CoderWorkspaceProxy:
        """The proxy when all is well with it: its pods are there and coderd sees them."""
        await self.condition("TokenSecretReady", "SecretReady", "True")
        await operator.wait_idle()
        await self.roll_out()
        for name in self.proxies:
            self.coderd.state.set_proxy(name, "ok")
        await operator.later(seconds=61)
        await self.condition("Ready", "AllPartsReady", "True")
        await operator.wait_idle()
        return await self.get()

    def registrations(self) -> int:
        """How many proxies were registered."""
        return self.coderd.state.count("POST", PROXIES)

    def changes(self) -> int:
        """How often a proxy was changed in coderd: renamed, or given a new token."""
        return self.coderd.state.count("PATCH", ONE)


def strangers(*coderds: CoderdServer) -> set[str]:
    """Tokens that a Coder was shown and did not give: they are for another one."""
    states = [coderd.state for coderd in coderds]
    return {token for state in states for token in state.heard if token.partition("-")[0] not in state.tokens}


@asynccontextmanager
async def proxy_namespace(
    admin: Path, operator: Path, namespace: str, version: str = "2.36.1", *, licensed: bool = True
) -> AsyncIterator[ProxyNamespace]:
    clock = Clock()
    async with CoderdServer(version, now=clock) as coderd, Http(load(admin), "user", Metrics()) as http:
        if licensed and coderd.state.is_enterprise:
            coderd.state.install_license()
        made = ProxyNamespace(Client(http, "user"), operator, namespace, coderd, clock)
        await made.put_secret(CREDENTIALS, token=coderd.state.token)
        yield made
