"""A crash scenario for a control plane with a database, a license and Roles in another namespace."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.access_db import token_name
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.workspace_roles import OPT_IN
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE, NAMESPACE_METADATA, ROLE, ROLE_BINDING, SECRET
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import objects
from tests.support.children import Children, collect_garbage, lines, managed
from tests.support.clock import Clock
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens, plane_namespace
from tests.support.crash_scenarios import CrashScenario, Event, State
from tests.support.crashes import is_rolled_out
from tests.support.databases import CoderdDatabase, create_database
from tests.support.gateways import accepting
from tests.support.objects import value_of_secret

GATEWAY = {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}
INGRESS = {"host": "coder.example.com"}
PORTS = (80, 8000)
ENVIRONMENT, LICENSE = "environment", "license"


class PlaneCrashScenario(CrashScenario):
    """A crash scenario for one control plane."""

    def __init__(self, demo: PlaneNamespace, routes: Mapping[Endpoint, Endpoint], database: CoderdDatabase) -> None:
        super().__init__(demo, routes)
        self.demo = demo
        self.away, self.other = (f"{demo.namespace}-{name}" for name in ("away", "other"))
        self.licenses = [make_license(demo.clock(), trial=trial) for trial in (False, True)]
        self._database = database
        self._kinds = [kind for kind in wiring.CHILDREN if "" in demo.watched or kind is not HTTP_ROUTE]

    async def make(self) -> None:
        """Create a control plane with a new database; fails if children of the previous one are left."""
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
            update={"strategy": "Rolling"},  # no Job runs here
        )

    async def subject(self) -> CoderControlPlane | None:
        return await objects.find(self.demo.client, CONTROL_PLANE, self.demo.key)

    async def state(self) -> State:
        plane = await self.subject()
        children = await self._children()
        return {
            "children": lines(children, plane.metadata.uid if plane else "no-such-uid"),
            "conditions": await self.demo.conditions() if plane else {},
            "finalizers": plane.metadata.finalizers if plane else None,
            "access": plane.status.operator_token_secret_ref if plane else None,
            "licenses": sorted(each.jwt for each in self.demo.coderd.state.licenses),
            "tokens": await self._tokens([child for kind, child in children if kind is SECRET]),
        }

    async def sync(self) -> bool:
        if await self.subject() is None:
            return await collect_garbage(self.demo.client, await self._children())
        live = await self.demo.find(DEPLOYMENT, self.demo.key.name)
        if live is None or is_rolled_out(live):
            return False
        await self.demo.roll_out(live.manifest["spec"]["replicas"])
        return True

    def advance_clock(self) -> None:
        self.demo.clock.advance(seconds=31)

    async def opt_in(self, namespace: str, whom: str | None) -> None:
        """Allow workspaces from another namespace in a namespace, or revoke it."""
        labels = {"metadata": {"labels": {OPT_IN: whom}}}
        await self.demo.client.merge(NAMESPACE_METADATA, Key("", namespace), labels)

    async def age_token(self) -> None:
        """Make the operator's token expire soon."""
        await self._in_database("UPDATE api_keys SET expires_at = now() + interval '10 days'")

    async def delete_token(self) -> None:
        """Delete the operator's token in the database."""
        await self._in_database("DELETE FROM api_keys")

    async def _in_database(self, sql: str) -> None:
        await self._database.server.execute(sql, self._database.name)

    async def _children(self) -> Children:
        client = self.demo.client
        here = await managed(client, self._kinds, [self.demo.namespace])
        return [*here, *await managed(client, (ROLE, ROLE_BINDING), [self.away, self.other])]

    async def _tokens(self, secrets: list[Unstructured]) -> list[bool]:
        """For every token in the database, whether a Secret of the operator holds it."""
        held = {value_of_secret(child, "token").partition("-")[0] for child in secrets}
        own = token_name(self.demo.key.namespace, self.demo.key.name)
        found = await operator_tokens(self._database)
        return [identifier in held for identifier, name in found if name in (own, f"{own}-2")]


@asynccontextmanager
async def crash_scenario(
    cluster: ClusterAccess, kubeconfig: Path, postgres: Postgres, home: str, *, everywhere: bool
) -> AsyncIterator[PlaneCrashScenario]:
    """A control plane in steady state, and two other namespaces."""
    neighbours = [f"{home}-away", f"{home}-other"]
    for name in neighbours:
        metadata = {"name": name, "labels": {OPT_IN: home}}
        cluster.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    database = await create_database(postgres, "2.36.1")
    clock = Clock.at_present()
    async with (
        plane_namespace(cluster.kubeconfig, kubeconfig, home, database_url=database.url, clock=clock) as demo,
        accepting(demo.client) if everywhere else nullcontext(),
    ):
        service = f"{demo.key.name}.{home}.svc.cluster.local"
        routes = {Endpoint(service, port): Endpoint("127.0.0.1", demo.coderd.port) for port in PORTS}
        demo.watched = [""] if everywhere else [home, *neighbours]
        if not everywhere:
            demo.builders = (partial(wiring.build, allow_workspace_namespaces=[f"{home}-*"]),)
        scenario = PlaneCrashScenario(demo, routes, database)
        await demo.put_secret("given", token=demo.coderd.state.token)
        await scenario.take(PlaneCrashScenario.make)
        yield scenario
    for name in neighbours:
        cluster.request("DELETE", f"/api/v1/namespaces/{name}")


def change(**spec: Any) -> Callable[[PlaneCrashScenario], Awaitable[None]]:
    return lambda scenario: scenario.demo.change(**spec)


def put(secret: str, **values: str) -> Callable[[PlaneCrashScenario], Awaitable[None]]:
    return lambda scenario: scenario.demo.put_secret(secret, **values)


async def delete(scenario: PlaneCrashScenario) -> None:
    await scenario.demo.delete(CONTROL_PLANE, scenario.demo.key.name)


async def renew_license(scenario: PlaneCrashScenario) -> None:
    await scenario.demo.put_secret(LICENSE, license=scenario.licenses[1])


async def restore_license(scenario: PlaneCrashScenario) -> None:
    """Restore the first license and delete the second in coderd, because the operator deletes no licenses."""
    scenario.demo.coderd.state.licenses.clear()
    await scenario.demo.put_secret(LICENSE, license=scenario.licenses[0])


EVENTS = {
    "life": Event(delete, PlaneCrashScenario.make),
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
        lambda scenario: scenario.demo.change(rbac={"workspaceNamespaces": [scenario.other]}),
        lambda scenario: scenario.demo.change(rbac={"workspaceNamespaces": [scenario.away]}),
    ),
    "consent": Event(
        lambda scenario: scenario.opt_in(scenario.away, None),
        lambda scenario: scenario.opt_in(scenario.away, scenario.demo.namespace),
    ),
    "token moved": Event(
        change(operatorAccess={"generatedTokenSecretName": "moved"}),
        change(operatorAccess={"generatedTokenSecretName": None}),
    ),
    "token renewed": Event(PlaneCrashScenario.age_token, PlaneCrashScenario.age_token),
    "token lost": Event(
        lambda scenario: scenario.demo.delete(SECRET, "demo-operator-token"), PlaneCrashScenario.delete_token
    ),
    "access": Event(
        change(operatorAccess={"disabled": True}, licenseSecretRef=None),
        change(operatorAccess=None, licenseSecretRef={"name": LICENSE}),
    ),
    "access given": Event(
        change(operatorAccess={"tokenSecretRef": {"name": "given"}}), change(operatorAccess={"tokenSecretRef": None})
    ),
    "license": Event(renew_license, restore_license),
}
