"""After a crash at any request, the next operator leaves exactly the Roles of a provisioner that are allowed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import PROVISIONER, CoderProvisioner
from coder_k8s.controllers.provisioner import wiring
from coder_k8s.controllers.workspace_roles import OPT_IN
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.kinds import NAMESPACE_METADATA, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from tests.security.users import client_of
from tests.support import objects
from tests.support.children import Children, collect_garbage, lines, managed
from tests.support.clock import Clock
from tests.support.crash_scenarios import CrashScenario, Event, State, crash_everywhere
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.slow

SLICE = 2
"""The number of crash points per event outside of the campaign."""


class Provisioners(Namespace[CoderProvisioner]):
    """A namespace with a provisioner."""

    kind = PROVISIONER


class RoleCrashScenario(CrashScenario):
    """A provisioner without a control plane: it has Roles, and nothing else that takes time."""

    place: Provisioners

    def __init__(self, place: Provisioners) -> None:
        super().__init__(place, {})
        self.away, self.other = (f"{place.namespace}-{name}" for name in ("away", "other"))

    async def make(self) -> None:
        """Create the provisioner; fails if children of the previous one are left."""
        assert not await self._children()
        await self.place.make(controlPlaneRef={"name": "none"}, workspaceNamespaces=[self.away])

    async def delete(self) -> None:
        await self.place.delete(PROVISIONER, self.place.name)

    async def change(self, **spec: Any) -> None:
        await self.place.change(**spec)

    async def opt_in(self, namespace: str, whom: str | None) -> None:
        labels = {"metadata": {"labels": {OPT_IN: whom}}}
        await self.place.client.merge(NAMESPACE_METADATA, Key("", namespace), labels)

    async def subject(self) -> CoderProvisioner | None:
        return await objects.find(self.place.client, PROVISIONER, self.place.key)

    async def state(self) -> State:
        found = await self.subject()
        return {
            "children": lines(await self._children(), found.metadata.uid if found else "no-such-uid"),
            "conditions": await self.place.conditions() if found else {},
            "finalizers": found.metadata.finalizers if found else None,
        }

    async def sync(self) -> bool:
        return await self.subject() is None and await collect_garbage(self.place.client, await self._children())

    def advance_clock(self) -> None:
        self.place.clock.advance(seconds=31)

    async def _children(self) -> Children:
        kinds = (ROLE, ROLE_BINDING, SERVICE_ACCOUNT)
        return await managed(self.place.client, kinds, [self.place.namespace, self.away, self.other])


EVENTS = {
    "life": Event(RoleCrashScenario.delete, RoleCrashScenario.make),
    "workspaces moved": Event(
        lambda scenario: scenario.change(workspaceNamespaces=[scenario.other]),
        lambda scenario: scenario.change(workspaceNamespaces=[scenario.away]),
    ),
    "rights": Event(
        lambda scenario: scenario.change(workspacePermissions=False),
        lambda scenario: scenario.change(workspacePermissions=None),
    ),
    "consent": Event(
        lambda scenario: scenario.opt_in(scenario.away, None),
        lambda scenario: scenario.opt_in(scenario.away, scenario.place.namespace),
    ),
}


@asynccontextmanager
async def crash_scenario(
    cluster: ClusterAccess, kubeconfig: Path, home: str, *, everywhere: bool
) -> AsyncIterator[RoleCrashScenario]:
    """A provisioner in steady state, and two other namespaces."""
    neighbours = [f"{home}-away", f"{home}-other"]
    for name in neighbours:
        metadata = {"name": name, "labels": {OPT_IN: home}}
        cluster.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    async with client_of(cluster.kubeconfig) as client:
        place = Provisioners(client, kubeconfig, Key(home, "build"), Clock.at_present())
        place.watched = [""] if everywhere else [home, *neighbours]
        allowed = [] if everywhere else [f"{home}-*"]
        place.builders = (partial(wiring.build, allow_workspace_namespaces=allowed),)
        scenario = RoleCrashScenario(place)
        await scenario.take(RoleCrashScenario.make)
        yield scenario
    for name in neighbours:
        cluster.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def scenario(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RoleCrashScenario]:
    """An operator that watches some namespaces and allows workspaces in them by a flag."""
    async with crash_scenario(cluster, operator_kubeconfig, namespace, everywhere=False) as scenario:
        yield scenario


@pytest.fixture
async def whole_scenario(fresh_cluster: Cluster, tmp_path: Path) -> AsyncIterator[RoleCrashScenario]:
    """An operator that watches a whole cluster; the other namespaces opt in by a label."""
    install_crds(fresh_cluster)
    fresh_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "home"}})
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    async with crash_scenario(fresh_cluster, kubeconfig, "home", everywhere=True) as scenario:
        yield scenario


@pytest.mark.parametrize("event", ["life", "workspaces moved", "rights"])
async def test_recovers_from_some_crashes(scenario: RoleCrashScenario, event: str) -> None:
    assert await crash_everywhere(scenario, EVENTS[event], SLICE)


async def test_recovers_from_some_crashes_after_consent_is_withdrawn(whole_scenario: RoleCrashScenario) -> None:
    assert await crash_everywhere(whole_scenario, EVENTS["consent"], SLICE)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("event", EVENTS)
async def test_recovers_from_every_crash(whole_scenario: RoleCrashScenario, event: str) -> None:
    print(f"{event}: {await crash_everywhere(whole_scenario, EVENTS[event])} crashes")  # noqa: T201
