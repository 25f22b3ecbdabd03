"""A crash scenario for updates of a control plane: pods are simulated, and the database is real."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.updates import Step
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.kinds import HTTP_ROUTE
from tests.support import objects
from tests.support.children import lines, managed
from tests.support.clock import Clock
from tests.support.controlplanes import PlaneNamespace, env, plane_namespace
from tests.support.crash_scenarios import CrashScenario, Event, State
from tests.support.databases import create_database
from tests.support.simulated_pods import SimulatedPods

ENDED = (Step.COMPLETE, Step.REFUSED, Step.ROLLED_BACK)


class UpdateCrashScenario(CrashScenario):
    """A crash scenario for one control plane that is updated."""

    time_dependent = frozenset({"Healthy", "EntitlementsKnown"})

    def __init__(self, demo: PlaneNamespace, pods: SimulatedPods) -> None:
        super().__init__(demo, demo.routes)
        self.demo = demo
        self.pods = pods

    async def subject(self) -> CoderControlPlane | None:
        return await objects.find(self.demo.client, CONTROL_PLANE, self.demo.key)

    async def state(self) -> State:
        """What must not depend on crashes: not the names of pods, nor when steps began."""
        plane = await self.subject()
        assert plane is not None
        update = plane.status.update
        kinds = [kind for kind in wiring.CHILDREN if kind is not HTTP_ROUTE]
        children = await managed(self.demo.client, kinds, [self.demo.namespace])
        conditions = await self.demo.conditions()
        return {
            "children": lines(children, plane.metadata.uid),
            "conditions": {name: value for name, value in conditions.items() if name not in self.time_dependent},
            "update": (update.step, update.image, update.schema_after) if update else None,
            "image": plane.status.image,
            "schema": self.pods.schema,
            "serving": await self.pods.serving(),
        }

    async def sync(self) -> bool:
        return await self.pods.sync()

    async def differences(self) -> str:
        plane = await self.subject()
        update = plane.status.update if plane else None
        if update is not None and update.step not in ENDED:
            return str(update)
        return await super().differences()

    def advance_clock(self) -> None:
        self.demo.clock.advance(seconds=31)

    async def restore(self) -> None:
        """Stop Coder, restore the database of the old version, and start its image."""
        await self.demo.change(replicas=0)
        assert await self.run_operator() is not None
        await self.pods.set_schema(412)
        await self.demo.change(image="coder:v1", replicas=2)


@asynccontextmanager
async def update_crash_scenario(
    cluster: ClusterAccess, kubeconfig: Path, postgres: Postgres, namespace: str
) -> AsyncIterator[UpdateCrashScenario]:
    """A control plane in steady state."""
    database = await create_database(postgres, "2.36.1")
    clock = Clock.at_present()
    async with plane_namespace(
        cluster.kubeconfig, kubeconfig, namespace, database_url=database.url, clock=clock
    ) as demo:
        pods = SimulatedPods(demo, database)
        await pods.create_schema()
        scenario = UpdateCrashScenario(demo, pods)

        async def make(_: UpdateCrashScenario) -> None:
            await demo.make(image="coder:v1", replicas=2, extraEnv=env(database.url))

        await scenario.take(make)
        yield scenario


def change(**spec: Any) -> Callable[[UpdateCrashScenario], Awaitable[None]]:
    return lambda scenario: scenario.demo.change(**spec)


EVENTS = {
    "same schema": Event(change(image="coder:v2"), change(image="coder:v1")),
    "new schema": Event(change(image="coder:v3"), UpdateCrashScenario.restore),
    "broken image": Event(change(image="coder:broken"), change(image="coder:v1")),
}
