"""A control plane with a database, a license and rights in another namespace, for operators that crash."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.access_db import token_name
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.rbac import OPT_IN
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE, NAMESPACE_METADATA, ROLE, ROLE_BINDING, SECRET
from coder_k8s.kube.objects import Key, Unstructured
from tests.support.children import Children, collect_garbage, lines, managed
from tests.support.coderd import Clock, Site, env, operator_tokens, site
from tests.support.crashes import is_rolled_out
from tests.support.databases import CoderdDatabase, create_database
from tests.support.drills import CrashScenario, Event, Ground, State
from tests.support.gateways import accepting

GATEWAY = {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}
INGRESS = {"host": "coder.example.com"}
PORTS = (80, 8000)
ENVIRONMENT, LICENSE = "environment", "license"


class PlaneDrill(CrashScenario):
    """One control plane."""

    def __init__(self, ground: Ground, demo: Site, database: CoderdDatabase) -> None:
        super().__init__(ground)
        self.demo = demo
        self.away, self.other = (f"{demo.key.namespace}-{name}" for name in ("away", "other"))
        self.licenses = [make_license(demo.clock(), trial=trial) for trial in (False, True)]
        self._database = database
        self._kinds = [kind for kind in wiring.CHILDREN if "" in ground.namespaces or kind is not HTTP_ROUTE]

    async def make(self) -> None:
        """A control plane whose coderd has never seen an operator; nothing may be left of the one before."""
        assert not await self._children()
        assert not await operator_tokens(self._database)
        await self._in_database("TRUNCATE users CASCADE")
        self.demo.coderd.state.licenses.clear()
        await self.demo.put_secret(LICENSE, license=self.licenses[0])
        await self.demo.put_secret(ENVIRONMENT, COLOUR="red")
        await self.demo.make(
            extraEnv=env(self._database.url),
            envFrom=[{"secretRef": {"name": ENVIRONMENT}}],
            licenseSecretRef={"name": LICENSE},
            rbac={"workspaceNamespaces": [self.away]},
        )

    async def subject(self) -> CoderControlPlane | None:
        try:
            return await self.demo.plane()
        except errors.NotFound:
            return None

    async def state(self) -> State:
        plane = await self.subject()
        children = await self._children()
        return {
            "children": lines(children, plane.metadata.uid if plane else "nobody"),
            "conditions": await self.demo.conditions() if plane else {},
            "finalizers": plane.metadata.finalizers if plane else None,
            "access": plane.status.operator_token_secret_ref if plane else None,
            "licenses": sorted(each.jwt for each in self.demo.coderd.state.licenses),
            "tokens": await self._tokens([child for kind, child in children if kind is SECRET]),
        }

    async def move_on(self) -> bool:
        if await self.subject() is None:
            return await collect_garbage(self.demo.client, await self._children())
        live = await self.demo.find(DEPLOYMENT, self.demo.key.name)
        if live is None or is_rolled_out(live):
            return False
        await self.demo.serve(live.manifest["spec"]["replicas"])
        return True

    def pass_time(self) -> None:
        self.demo.clock.advance(seconds=31)

    async def agree(self, namespace: str, whom: str | None) -> None:
        """Let a namespace agree to workspaces from there, or no more."""
        labels = {"metadata": {"labels": {OPT_IN: whom}}}
        await self.demo.client.merge(NAMESPACE_METADATA, Key("", namespace), labels)

    async def age_token(self) -> None:
        """Let the operator's token have little time left."""
        await self._in_database("UPDATE api_keys SET expires_at = now() + interval '10 days'")

    async def lose_token(self) -> None:
        """Somebody removes the operator's token."""
        await self._in_database("DELETE FROM api_keys")

    async def _in_database(self, sql: str) -> None:
        await self._database.server.execute(sql, self._database.name)

    async def _children(self) -> Children:
        client = self.demo.client
        here = await managed(client, self._kinds, [self.demo.key.namespace])
        return [*here, *await managed(client, (ROLE, ROLE_BINDING), [self.away, self.other])]

    async def _tokens(self, secrets: list[Unstructured]) -> list[bool]:
        """Of every token in the database whether a Secret of ours holds it."""
        values = [(child.manifest.get("data") or {}).get("token", "") for child in secrets]
        held = {base64.b64decode(value).decode().partition("-")[0] for value in values}
        own = token_name(*self.demo.key)
        found = await operator_tokens(self._database)
        return [identifier in held for identifier, name in found if name in (own, f"{own}-2")]


@asynccontextmanager
async def drilling(
    cluster: ClusterAccess, kubeconfig: Path, postgres: Postgres, home: str, *, everywhere: bool
) -> AsyncIterator[PlaneDrill]:
    """A control plane at rest, in a namespace that has two others beside it."""
    neighbours = [f"{home}-away", f"{home}-other"]
    for name in neighbours:
        metadata = {"name": name, "labels": {OPT_IN: home}}
        cluster.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    database = await create_database(postgres, "2.36.1")
    clock = Clock()
    clock.time = datetime.now(UTC)
    async with (
        site(cluster.kubeconfig, kubeconfig, home, database_url=database.url, clock=clock) as demo,
        accepting(demo.client) if everywhere else nullcontext(),
    ):
        service = f"{demo.key.name}.{home}.svc.cluster.local"
        ground = Ground(
            kubeconfig=kubeconfig,
            namespaces=[""] if everywhere else [home, *neighbours],
            routes={Endpoint(service, port): Endpoint("127.0.0.1", demo.coderd.port) for port in PORTS},
            now=clock,
            build=wiring.build if everywhere else partial(wiring.build, allow_workspace_namespaces=[f"{home}-*"]),
            key=demo.key,
        )
        drill = PlaneDrill(ground, demo, database)
        await demo.put_secret("given", token=demo.coderd.state.token)
        await drill.take(PlaneDrill.make)
        yield drill
    for name in neighbours:
        cluster.request("DELETE", f"/api/v1/namespaces/{name}")


def change(**spec: Any) -> Callable[[PlaneDrill], Awaitable[None]]:
    return lambda drill: drill.demo.change(**spec)


def put(secret: str, **values: str) -> Callable[[PlaneDrill], Awaitable[None]]:
    return lambda drill: drill.demo.put_secret(secret, **values)


async def delete(drill: PlaneDrill) -> None:
    await drill.demo.delete(CONTROL_PLANE, drill.demo.key.name)


async def renew(drill: PlaneDrill) -> None:
    await drill.demo.put_secret(LICENSE, license=drill.licenses[1])


async def take_back(drill: PlaneDrill) -> None:
    """Only people delete licenses, so somebody does: coderd would have both."""
    drill.demo.coderd.state.licenses.clear()
    await drill.demo.put_secret(LICENSE, license=drill.licenses[0])


EVENTS = {
    "life": Event(delete, PlaneDrill.make),
    "pods": Event(
        change(replicas=3, image="coder:v2.36.1", certs={"secrets": [{"name": "a", "key": "b"}]}),
        change(replicas=None, image=None, certs=None),
    ),
    "environment": Event(put(ENVIRONMENT, COLOUR="blue"), put(ENVIRONMENT, COLOUR="red")),
    "service": Event(change(service={"port": PORTS[1], "annotations": {"a": "b"}}), change(service=None)),
    "tls": Event(change(tls={"secretNames": ["certificate"]}), change(tls=None)),
    "exposure": Event(change(expose={"ingress": INGRESS}), change(expose=None)),
    "exposure switched": Event(
        change(expose={"ingress": None, "gateway": GATEWAY}), change(expose={"ingress": INGRESS, "gateway": None})
    ),
    "account": Event(change(serviceAccount={"name": "other"}), change(serviceAccount=None)),
    "account released": Event(change(serviceAccount={"disableCreate": True}), change(serviceAccount=None)),
    "rights": Event(change(rbac={"workspacePerms": False}), change(rbac={"workspacePerms": None})),
    "workspaces moved": Event(
        lambda drill: drill.demo.change(rbac={"workspaceNamespaces": [drill.other]}),
        lambda drill: drill.demo.change(rbac={"workspaceNamespaces": [drill.away]}),
    ),
    "consent": Event(
        lambda drill: drill.agree(drill.away, None), lambda drill: drill.agree(drill.away, drill.demo.key.namespace)
    ),
    "token moved": Event(
        change(operatorAccess={"generatedTokenSecretName": "moved"}),
        change(operatorAccess={"generatedTokenSecretName": None}),
    ),
    "token renewed": Event(PlaneDrill.age_token, PlaneDrill.age_token),
    "token lost": Event(lambda drill: drill.demo.delete(SECRET, "demo-operator-token"), PlaneDrill.lose_token),
    "access": Event(
        change(operatorAccess={"disabled": True}, licenseSecretRef=None),
        change(operatorAccess=None, licenseSecretRef={"name": LICENSE}),
    ),
    "access given": Event(
        change(operatorAccess={"tokenSecretRef": {"name": "given"}}), change(operatorAccess={"tokenSecretRef": None})
    ),
    "license": Event(renew, take_back),
}
