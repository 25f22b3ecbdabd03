"""Whatever request is the last before a crash, the next operator ends where an undisturbed one would have ended."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coder_k8s.coderd.access_db import token_name
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import setup
from coder_k8s.controllers.names import hashed
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.conditions import find
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE
from coder_k8s.kube.objects import Child, Key, Manifest
from tests.controllers.controlplane.test_fields import flat
from tests.support import eventually
from tests.support.coderd import Site, env, operator_tokens, site
from tests.support.crashes import Fate, mortal
from tests.support.databases import CoderdDatabase, create_database

from .test_every_property import VOLATILE

PATIENCE = 30.0
LOOKS = 12
SLICE = 2
"""How many of the crashes of an event are tried in every run of the tests."""
State = dict[str, Any]


def change(**spec: Any) -> Callable[[Site], Awaitable[None]]:
    return lambda demo: demo.change(**spec)


async def renew(demo: Site) -> None:
    await demo.put_secret("licence", license=make_license(demo.clock(), trial=True))


async def take_back(demo: Site) -> None:
    """The licence of before is in coderd still, beside the later one: only people delete licences."""
    demo.coderd.state.licenses.clear()
    await demo.put_secret("licence", license=make_license(demo.clock.__class__()()))


EVENTS: dict[str, tuple[Callable[[Site], Awaitable[None]], Callable[[Site], Awaitable[None]]]] = {
    "pods": (change(replicas=3, image="coder:v2.36.1"), change(replicas=None, image=None)),
    "service": (change(service={"annotations": {"a": "b"}}), change(service=None)),
    "exposure": (change(expose={"ingress": {"host": "coder.example.com"}}), change(expose=None)),
    "account": (change(serviceAccount={"name": "other"}), change(serviceAccount=None)),
    "rights": (change(rbac={"workspacePerms": False}), change(rbac=None)),
    "token moved": (
        change(operatorAccess={"generatedTokenSecretName": "moved"}),
        change(operatorAccess={"generatedTokenSecretName": None}),
    ),
    "access": (
        change(operatorAccess={"disabled": True}, licenseSecretRef=None),
        change(operatorAccess=None, licenseSecretRef={"name": "licence"}),
    ),
    "licence": (renew, take_back),
}


class Drill:
    """One control plane, operators that crash, and what must be the same in spite of them."""

    def __init__(self, demo: Site, kubeconfig: Path, database: CoderdDatabase) -> None:
        self.demo = demo
        self._kubeconfig = kubeconfig
        self._database = database

    async def make(self, name: str) -> None:
        """Another control plane, of which all that follows tells."""
        self.demo.key = Key(self.demo.key.namespace, name)
        await self.demo.make(extraEnv=env(self._database.url), licenseSecretRef={"name": "licence"})

    async def live(self, at: int = 0, *, before: bool = False) -> list[str] | None:
        """Let an operator work until all is at rest, or it dies; the requests that it made if it lives."""
        demo, fate = self.demo, Fate()
        fate.decide(at, before=before)
        service = Endpoint(f"{demo.key.name}.{demo.key.namespace}.svc.cluster.local", 80)
        routes = {service: Endpoint("127.0.0.1", demo.coderd.port)}
        async with mortal(self._kubeconfig, demo.key.namespace, routes, demo.clock, fate, setup.build) as controller:
            for _ in range(LOOKS):
                await eventually(lambda: fate.dead.is_set() or _is_idle(controller), PATIENCE)
                if fate.dead.is_set():
                    return None
                if not await self._move_on() and not await self._flaws():
                    return fate.seen
                demo.clock.advance(seconds=31)
                controller.queue.add(demo.key)
        raise AssertionError(await self._flaws())

    async def state(self) -> State:
        """All that the operator decides: children, conditions, licences in coderd and tokens in its database."""
        kinds = [kind for kind in setup.CHILDREN if kind is not HTTP_ROUTE]
        children = [(kind.name, self._renamed(child)) for kind in kinds for child in await self._children(kind)]
        lines = {line for kind, child in children for line in flat(child, f"{kind} {child['metadata']['name']}")}
        own = token_name(*self.demo.key)
        return {
            "children": {line for line in lines if not VOLATILE.search(line[0])},
            "conditions": await self.demo.conditions(),
            "licences": sorted(each.jwt for each in self.demo.coderd.state.licenses),
            "tokens": sum(name in (own, f"{own}-2") for _, name in await operator_tokens(self._database)),
        }

    def _renamed(self, child: Child) -> Manifest:
        """A child of any control plane, as if that were called `demo`."""
        text = json.dumps(child.manifest).replace(hashed(*self.demo.key), "hash")
        text = text.replace(child.controller.uid if child.controller else "", "uid")
        manifest: Manifest = json.loads(text.replace(self.demo.key.name, "demo"))
        return manifest

    async def _children(self, kind: Any) -> list[Child]:
        uid = (await self.demo.plane()).metadata.uid
        pages = self.demo.client.list(kind, self.demo.key.namespace)
        found = [kind.type.decode(item) async for page in pages for item in page.items]
        return [each for each in found if each.controller is not None and each.controller.uid == uid]

    async def _move_on(self) -> bool:
        """Roll the Deployment out; whether there was something to do."""
        live = await self.demo.find(DEPLOYMENT, self.demo.key.name)
        if live is None or (live.manifest.get("status") or {}).get("observedGeneration") == live.metadata.generation:
            return False
        await self.demo.serve(live.manifest["spec"]["replicas"])
        return True

    async def _flaws(self) -> list[str]:
        plane = await self.demo.plane()
        ready, told = find(plane.status.conditions, "Ready"), plane.status.observed_generation
        if told == plane.metadata.generation and ready is not None and ready.status == "True":
            return []
        return [f"{told} of {plane.metadata.generation}: {ready}"]


def _is_idle(controller: Controller) -> bool:
    return not len(controller.queue) and not controller.queue._busy


@pytest.fixture
async def drill(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, postgres: Postgres
) -> AsyncIterator[Drill]:
    database = await create_database(postgres, "2.36.1")
    async with site(cluster.kubeconfig, operator_kubeconfig, namespace, database_url=database.url) as demo:
        await demo.put_secret("licence", license=make_license(demo.clock()))
        drill = Drill(demo, operator_kubeconfig, database)
        await drill.make("demo")
        assert await drill.live()
        yield drill


async def crash(drill: Drill, event: str, at: int, *, before: bool, expected: State | None) -> tuple[int, State]:
    """Crash once on the way from one state to the next, and go back; how many requests that took, and the end."""
    act, undo = EVENTS[event]
    begin = await drill.state()
    await act(drill.demo)
    seen = await drill.live(at, before=before)
    if seen is None:
        assert await drill.live() is not None
    end = await drill.state()
    where = f"{event}: {'before' if before else 'after'} request {at}"
    compare(end, expected or end, where)
    await undo(drill.demo)
    assert await drill.live() is not None
    back = await drill.state()
    assert back["children"] == begin["children"], where
    assert back["tokens"] == begin["tokens"], where
    return len(seen or ()), end


def compare(found: State, expected: State, where: str) -> None:
    children, wanted = found["children"], expected["children"]
    assert (children - wanted, wanted - children) == (set(), set()), where
    assert found == expected, where


async def create(drill: Drill, at: int, *, before: bool, expected: State) -> int:
    """Crash once while a control plane is made; how many requests that took."""
    await drill.make(f"demo-{at}-{before:d}")
    seen = await drill.live(at, before=before)
    if seen is None:
        assert await drill.live() is not None
    compare(await drill.state(), expected, f"created: {'before' if before else 'after'} request {at}")
    return len(seen or ())


async def test_some_crashes_of_a_creation_are_survived(drill: Drill) -> None:
    expected = await drill.state()
    number = await create(drill, 0, before=False, expected=expected)
    every = [(at, before) for at in range(1, number + 1) for before in (True, False)]
    for at, before in Random(0).sample(every, SLICE):  # noqa: S311 - the same in every run
        await create(drill, at, before=before, expected=expected)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_every_crash_of_a_creation_is_survived(drill: Drill) -> None:
    expected = await drill.state()
    number = await create(drill, 0, before=False, expected=expected)
    for at in range(1, number + 1):
        for before in (True, False):
            await create(drill, at, before=before, expected=expected)
    print(f"created: {2 * number} crashes")  # noqa: T201


@pytest.mark.parametrize("event", ["exposure", "token moved"])
async def test_some_crashes_are_survived(drill: Drill, event: str) -> None:
    number, expected = await crash(drill, event, 0, before=False, expected=None)
    every = [(at, before) for at in range(1, number + 1) for before in (True, False)]
    for at, before in Random(event).sample(every, SLICE):  # noqa: S311 - the same in every run
        await crash(drill, event, at, before=before, expected=expected)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("event", EVENTS)
async def test_every_crash_is_survived(drill: Drill, event: str) -> None:
    number, expected = await crash(drill, event, 0, before=False, expected=None)
    for at in range(1, number + 1):
        for before in (True, False):
            await crash(drill, event, at, before=before, expected=expected)
    print(f"{event}: {2 * number} crashes")  # noqa: T201
