"""A crash scenario: a workspace proxy and two Coder deployments to register it at."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.workspaceproxy.objects import checksum_of
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Unstructured
from tests.support.children import Children, collect_garbage, lines
from tests.support.crash_scenarios import CrashScenario, Event, State
from tests.support.crashes import is_rolled_out
from tests.support.objects import value_of_secret
from tests.support.workspaceproxies import CREDENTIALS, NAME, PLANE, SECRET_NAME, ProxyNamespace, leaked_tokens

HOME, ELSEWHERE = "home.example.com", "elsewhere.example.com"
REGISTERED = {"coderURL": f"http://{HOME}", "credentialsSecretRef": {"name": CREDENTIALS}}
NAMES = {"displayName": "Sydney", "icon": "/1.png"}


class ProxyCrashScenario(CrashScenario):
    """One workspace proxy."""

    time_dependent = frozenset(("Ready", "Reconciling", "Stalled", "ProxyHealthy"))

    place: ProxyNamespace

    def __init__(self, place: ProxyNamespace, routes: Mapping[Endpoint, Endpoint], other: CoderdServer) -> None:
        super().__init__(place, routes)
        self.other = other
        self._changes = 0

    async def make(self) -> None:
        """Create a proxy that is registered; nothing of an earlier one may be left."""
        assert (await self.place.children(), self.place.proxies, self.other.state.proxies) == ([], {}, {})
        self._changes = self.place.changes()
        await self.place.make(NAME, bootstrap={**REGISTERED, **NAMES})

    async def delete(self) -> None:
        assert self.place.changes() - self._changes <= 1, "more than one token was regenerated"
        await self.place.delete(WORKSPACE_PROXY, NAME)

    async def lose_proxy(self) -> None:
        """Delete it in Coder."""
        self.place.coderd.state.delete_proxy(NAME)

    async def subject(self) -> CoderWorkspaceProxy | None:
        found: CoderWorkspaceProxy | None = await self.place.find(WORKSPACE_PROXY, NAME)
        return found

    async def state(self) -> State:
        proxy = await self.subject()
        children = await self.place.children()
        return {
            "children": lines(children, proxy.metadata.uid if proxy else "nobody"),
            "conditions": await self.place.conditions() if proxy else {},
            "finalizers": proxy.metadata.finalizers if proxy else None,
            "status": self._recorded(proxy) if proxy else None,
            "registered": [self._registered(coderd, children) for coderd in (self.place.coderd, self.other)],
            "pods": await self._pods(proxy) if proxy else None,
        }

    async def sync(self) -> bool:
        if await self.subject() is None:
            return await collect_garbage(self.place.client, await self.place.children())
        states, held = (self.place.coderd.state, self.other.state), _held(await self.place.children())
        new = [
            (state, name)
            for state in states
            for name, proxy in state.proxies.items()
            if proxy.status != "ok" and proxy.token in held  # without its token, no process connects
        ]
        for state, name in new:
            state.set_proxy(name, "ok")
        live: Unstructured | None = await self.place.find(DEPLOYMENT, f"wsproxy-{NAME}")
        if live is None or is_rolled_out(live):
            return bool(new)
        await self.place.roll_out(live.manifest["spec"]["replicas"])
        return True

    def advance_clock(self) -> None:
        self.place.clock.advance(seconds=61)

    def _recorded(self, proxy: CoderWorkspaceProxy) -> tuple[object, ...]:
        status = proxy.status
        stored = [*self.place.proxies.values(), *self.other.state.proxies.values()]
        exists = status.proxy_id in {each.id for each in stored}
        where = (status.coder_url, status.control_plane_ref_name, status.credentials_secret_ref)
        token = status.proxy_token_secret_ref
        return status.registered, status.proxy_name, exists, where, token, status.retiring_proxies

    def _registered(self, coderd: CoderdServer, children: Children) -> list[tuple[object, ...]]:
        """Every proxy of a deployment, and whether a Secret of the object has its token."""
        held = _held(children)
        return [(each.name, each.display_name, each.icon, each.token in held) for each in coderd.state.proxies.values()]

    async def _pods(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether the pods use the current token."""
        reference = proxy.status.proxy_token_secret_ref
        secret: Unstructured | None = await self.place.find(SECRET, reference.name) if reference else None
        live: Unstructured | None = await self.place.find(DEPLOYMENT, f"wsproxy-{NAME}")
        return (
            secret is not None
            and live is not None
            and checksum_of(live) == fnv1a32(value_of_secret(secret, "token").encode())
        )


def _held(children: Children) -> set[str]:
    """The tokens in the Secrets of the object."""
    return {value_of_secret(child, "token") for kind, child in children if kind is SECRET}


@asynccontextmanager
async def crash_scenario(place: ProxyNamespace) -> AsyncIterator[ProxyCrashScenario]:
    """A workspace proxy in steady state, and a control plane with its own Coder."""
    async with CoderdServer(now=place.clock) as other:
        other.state.install_license()
        service = f"{PLANE}.{place.namespace}.svc.cluster.local"
        ports = {HOME: place.coderd.port, ELSEWHERE: other.port, service: other.port}
        routes = {Endpoint(host, 80): Endpoint("127.0.0.1", port) for host, port in ports.items()}
        await place.make_plane()
        await place.set_annotations(CONTROL_PLANE, PLANE, {PAUSED: "true"})
        for name in (f"{PLANE}-operator-token", "other-session"):
            await place.put_secret(name, token=other.state.token)
        await place.put_secret("given", token="other:token")
        scenario = ProxyCrashScenario(place, routes, other)
        await scenario.take(ProxyCrashScenario.make)
        yield scenario
        assert not leaked_tokens(place.coderd, other)


def change(**spec: Any) -> Callable[[ProxyCrashScenario], Awaitable[None]]:
    return lambda scenario: scenario.place.change(NAME, **spec)


async def register(scenario: ProxyCrashScenario) -> None:
    """Register it with given credentials only."""
    others = dict.fromkeys(("controlPlaneRef", "proxySessionTokenSecretRef", "primaryAccessURL"))
    await scenario.place.change(NAME, bootstrap={**REGISTERED, **NAMES}, **others)


EVENTS = {
    "life": Event(ProxyCrashScenario.delete, ProxyCrashScenario.make),
    "pods": Event(
        change(replicas=2, image="coder:v2.36.1", derpOnly=True), change(replicas=None, image=None, derpOnly=None)
    ),
    "service": Event(change(service={"annotations": {"a": "b"}}), change(service=None)),
    "names": Event(
        change(bootstrap={"displayName": "Down under", "icon": "/2.png", "proxyName": "Oceania"}),
        change(bootstrap={**NAMES, "proxyName": None}),
    ),
    "secret renamed": Event(
        change(bootstrap={"generatedTokenSecretName": "moved"}), change(bootstrap={"generatedTokenSecretName": None})
    ),
    "token lost": Event(
        lambda scenario: scenario.place.delete(SECRET, SECRET_NAME),
        lambda scenario: scenario.place.put_secret(SECRET_NAME, token="spoiled"),
    ),
    "deleted in Coder": Event(ProxyCrashScenario.lose_proxy, ProxyCrashScenario.lose_proxy),
    "given a token": Event(
        change(
            bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL="https://coder.example.com"
        ),
        register,
    ),
    "moved to another Coder": Event(
        change(bootstrap={"coderURL": f"http://{ELSEWHERE}", "credentialsSecretRef": {"name": "other-session"}}),
        register,
    ),
    "moved to a control plane": Event(change(bootstrap=None, controlPlaneRef={"name": PLANE}), register),
}
