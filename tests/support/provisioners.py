"""Provisioners with simulated control planes, pods and daemons."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.names import derived
from coder_k8s.controllers.provisioner import wiring
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.records import StoredKey
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, Unstructured, timestamp
from tests.support import objects
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.namespaces import Namespace
from tests.support.operators import Builder, Operator

NAME = "build"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Digits(Random):
    """Predictable suffixes of keys: build-0002, then build-0004 and so on.

    Each step is decided twice, with cached and with current state, and each decision draws a suffix.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = count(1)

    def getrandbits(self, bits: int, /) -> int:
        return next(self._next)


class Plane:
    """A control plane: its token, and its coderd with a second organization named acme."""

    def __init__(self, name: str, token: str, coderd: CoderdServer, acme: CoderdServer) -> None:
        self.name = name
        self.token = token
        self.coderd = coderd
        self.acme = acme
        self.before: Callable[[web.Request], None] = lambda request: None
        """Called with every request before coderd handles it."""
        coderd._runner.app.middlewares.insert(0, self._intercept)

    @property
    def keys(self) -> dict[str, StoredKey]:
        return self.coderd.state.keys

    @property
    def presented(self) -> set[str]:
        """Every token and key that requests contained."""
        return self.coderd.state.presented | self.acme.state.presented

    def request_count(self, method: str = "", part: str = "") -> int:
        """The number of requests with this method and part of the route."""
        return sum(
            count
            for (sent, route), count in self.coderd.state.requests.items()
            if method in ("", sent) and part in route
        )

    @web.middleware
    async def _intercept(self, request: web.Request, handler: Handler) -> web.StreamResponse:
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


class ProvisionerNamespace(Namespace[CoderProvisioner]):
    """A namespace with control planes and provisioners."""

    kind = PROVISIONER
    builders: tuple[Builder, ...] = (wiring.build,)
    children_kinds = wiring.CHILDREN
    deployment_prefix = "provisioner-"

    def __init__(self, client: Client, kubeconfig: Path, key: Key, clock: Clock) -> None:
        super().__init__(client, kubeconfig, key, clock)
        self.planes: dict[str, Plane] = {}
        self.rng = Digits()

    @property
    def plane(self) -> Plane:
        """The first control plane."""
        return next(iter(self.planes.values()))

    @property
    def keys(self) -> dict[str, StoredKey]:
        """The keys in its coderd."""
        return self.plane.keys

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        return {
            Endpoint(f"{name}.{self.namespace}.svc.cluster.local", port): Endpoint("127.0.0.1", plane.coderd.port)
            for name, plane in self.planes.items()
            for port in (80, 8080)
        }

    def operator(self, **options: Any) -> Operator:
        return super().operator(**{"rng": self.rng, **options})

    async def make_plane(self, name: str, **status: Any) -> None:
        """Create a control plane that is ready, with changes to its status."""
        await self.put_secret(f"{name}-operator-token", token=self.planes[name].token)
        await objects.create(self.client, CONTROL_PLANE, self.key_of(name), {"image": "coder:v2.36.1"})
        ready = {**objects.ready_plane_status(self.key_of(name)), **self.fresh("entitled")}
        await self.set_plane_status(name, **{**ready, **status})

    def fresh(self, entitlement: str) -> Manifest:
        """Status fields of a control plane whose license was checked now."""
        return {
            "externalProvisionerDaemonsEntitlement": entitlement,
            "entitlementsLastChecked": timestamp(self.clock()),
        }

    async def set_plane_status(self, plane: str, **status: Any) -> None:
        await self.client.merge(CONTROL_PLANE, self.key_of(plane), {"status": status}, "status")

    async def make(self, name: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> CoderProvisioner:
        metadata = {"namespace": self.namespace, "name": name or self.name, "annotations": annotations or {}}
        spec = {"controlPlaneRef": {"name": self.plane.name}, **spec}
        return await self.client.create(PROVISIONER, {"metadata": metadata, "spec": spec})

    async def annotate(self, name: str = "", **annotations: str | None) -> None:
        named = {f"coder.com/{word.replace('_', '-')}": value for word, value in annotations.items()}
        await self.set_annotations(PROVISIONER, name, named)

    async def deployment(self, name: str = "") -> Unstructured:
        """A Deployment that exists."""
        return await self.client.get(DEPLOYMENT, self.key_of(name or self.deployment_prefix + self.name))

    async def stored(self, secret: str = f"{NAME}-provisioner-key", field: str = "key") -> str:
        """The key in a Secret."""
        return await self.secret_value(secret, field)

    async def roll_out_daemons(self, ready: int = 1, name: str = NAME, plane: str = "") -> None:
        """Roll out the Deployment of a provisioner, with daemons that use only the current key."""
        await self.roll_out(ready, derived(name, prefix=self.deployment_prefix))
        key = (await self.get(name)).status.provisioner_key_name
        state = (self.planes[plane] if plane else self.plane).coderd.state
        for daemon in [each for each in state.daemons.values() if each.name.startswith(f"{name}-")]:
            state.disconnect_daemon(daemon.id)
        for number in range(ready):
            state.connect_daemon(f"{name}-{number}", key)

    async def ready(self, operator: Operator, name: str = NAME, ready: int = 1) -> CoderProvisioner:
        """Wait until the provisioner is Ready."""
        await self.condition("ProvisionerKeyReady", "KeyReady", "True", name=name)
        await operator.wait_idle()
        await self.roll_out_daemons(ready, name)
        self.clock.advance(seconds=11)
        await operator.reconcile(self.key_of(name))
        await self.condition("Ready", "AllReady", name=name)
        await operator.wait_idle()
        return await self.get(name)


@asynccontextmanager
async def provisioner_namespace(
    admin: Path,
    operator: Path,
    namespace: str,
    planes: Sequence[str] = ("demo",),
    version: str = "2.36.1",
    clock: Clock | None = None,
) -> AsyncIterator[ProvisionerNamespace]:
    """A namespace with licensed coderds; tests create their control planes. By default, tests advance the clock."""
    clock = clock or Clock.at_present()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Http(load(admin), "user", Metrics()))
        place = ProvisionerNamespace(UserClient(http, "user"), operator, Key(namespace, NAME), clock)
        for name in planes:
            coderd, acme = CoderdServer(version, now=clock), CoderdServer(version, now=clock)
            for server in (coderd, acme):
                server.state.install_license()
            token = acme.state.add_token(acme.state.owner, coderd.state.token)
            place.planes[name] = Plane(name, token, coderd, acme)
            await stack.enter_async_context(coderd)
            await stack.enter_async_context(acme)
        yield place
