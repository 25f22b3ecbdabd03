"""Workspace proxies, and the coderd simulator that they register with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.workspaceproxy import wiring
from coder_k8s.dev.coderd_server import CoderdServer, User
from coder_k8s.dev.coderd_server.proxies import register
from coder_k8s.dev.coderd_server.records import Proxy
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support import objects
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.namespaces import Namespace
from tests.support.operators import Builder, Operator

FINALIZER = "coder.com/workspace-proxy-cleanup"
NAME = "sydney"
PLANE = "demo"
CREDENTIALS = "coder-session"
PROXIES = "/api/v2/workspaceproxies"
ONE = "/api/v2/workspaceproxies/{name}"
SECRET_NAME = f"{NAME}-proxy-token"
MEMBER = User("member", ("member",))
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", Unstructured)


class ProxyNamespace(Namespace[CoderWorkspaceProxy]):
    """A namespace with workspace proxies, a licensed coderd, and a Secret with credentials for it."""

    kind = WORKSPACE_PROXY
    builders: tuple[Builder, ...] = (wiring.build,)
    children_kinds = wiring.CHILDREN
    deployment_prefix = "wsproxy-"

    def __init__(self, client: Client, kubeconfig: Path, key: Key, coderd: CoderdServer, clock: Clock) -> None:
        super().__init__(client, kubeconfig, key, clock)
        self.coderd = coderd

    @property
    def proxies(self) -> dict[str, Proxy]:
        """The registered proxies by name."""
        return self.coderd.state.proxies

    @property
    def bootstrap(self) -> Manifest:
        return {"coderURL": self.coderd.url, "credentialsSecretRef": {"name": CREDENTIALS}}

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        host = f"{PLANE}.{self.namespace}.svc.cluster.local"
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port)}

    async def make(self, name: str = "", **spec: Any) -> CoderWorkspaceProxy:
        """Create a workspace proxy; by default it is registered with the credentials in the Secret."""
        return await super().make(name, **(spec or {"bootstrap": self.bootstrap}))

    async def make_plane(self, **status: Any) -> None:
        """Create a control plane whose coderd is the simulator, with operator access."""
        await self.put_secret(f"{PLANE}-operator-token", token=self.coderd.state.token)
        await objects.create(self.client, CONTROL_PLANE, self.key_of(PLANE), {"image": "coder:v2.36.1"})
        await self.set_plane_status(**{**objects.ready_plane_status(self.key_of(PLANE)), **status})

    async def set_plane_status(self, **status: Any) -> None:
        await self.client.merge(CONTROL_PLANE, self.key_of(PLANE), {"status": status}, "status")

    async def token(self, secret: str = SECRET_NAME) -> str:
        """The token in a Secret; empty if there is none."""
        return await self.secret_value(secret, "token")

    async def ready(self, operator: Operator) -> CoderWorkspaceProxy:
        """Wait until the proxy is Ready: its pods run and coderd reports it as healthy."""
        await self.condition("TokenSecretReady", "SecretReady", "True")
        await operator.wait_idle()
        await self.roll_out()
        for name in self.proxies:
            self.coderd.state.set_proxy(name, "ok")
        await operator.later(seconds=61)
        await self.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        return await self.get()

    def registrations(self) -> int:
        """The number of registrations."""
        return self.coderd.state.count("POST", PROXIES)

    def changes(self) -> int:
        """The number of changes of a proxy in coderd: a new name or token."""
        return self.coderd.state.count("PATCH", ONE)


def leaked_tokens(*coderds: CoderdServer) -> set[str]:
    """Tokens that a coderd received but did not issue: they belong to another one."""
    states = [coderd.state for coderd in coderds]
    return {token for state in states for token in state.presented if token.partition("-")[0] not in state.tokens}


@asynccontextmanager
async def proxy_namespace(
    admin: Path, operator: Path, namespace: str, version: str = "2.36.1", *, licensed: bool = True
) -> AsyncIterator[ProxyNamespace]:
    clock = Clock.at_present()
    async with CoderdServer(version, now=clock) as coderd, Http(load(admin), "user", Metrics()) as http:
        if licensed and coderd.state.is_enterprise:
            coderd.state.install_license()
        made = ProxyNamespace(UserClient(http, "user"), operator, Key(namespace, NAME), coderd, clock)
        await made.put_secret(CREDENTIALS, token=coderd.state.token)
        yield made


def register_foreign_proxy(state: State, name: str = NAME) -> Proxy:
    """Register a proxy that the operator did not create."""
    made = Proxy("5c7e0d2b-0000-4000-8000-000000000001", name, "Foreign", "/x.png", "", "ok", state.now())
    register(state, replace(made, url="https://foreign.example.com"))
    return state.proxies[name.lower()]


async def set_quota(place: ProxyNamespace, used: int) -> None:
    """Set a quota of one Secret and the number of Secrets that count against it."""
    metadata = {"namespace": place.namespace, "name": "secrets"}
    if await place.find(QUOTA, "secrets") is None:
        await place.client.create(QUOTA, {"metadata": metadata, "spec": {"hard": {"count/secrets": "1"}}})
    status = {"hard": {"count/secrets": "1"}, "used": {"count/secrets": str(used)}}
    await place.client.merge(QUOTA, Key(place.namespace, "secrets"), {"status": status}, "status")


async def is_quota_exceeded(place: ProxyNamespace) -> bool:
    found = await place.condition("Registered", "SecretRefused", "False")
    return "exceeded quota" in found.message


def container(deployment: Unstructured) -> dict[str, Any]:
    [found] = deployment.manifest["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(deployment: Unstructured) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") or entry["valueFrom"] for entry in container(deployment)["env"]}
