"""Objects whose specs tests change and restore, and the resulting state."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.controllers.controlplane.wiring import CHILDREN
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube.conditions import find
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.controllers.controlplane.planes import Observer, observing, rolling_out
from tests.support import eventually
from tests.support.children import flat
from tests.support.clock import SystemClock
from tests.support.operators import Operator
from tests.support.rotations import RotationNamespace, rotation_namespace

from .examples import CODER_URL
from .mutations import Mutation

TIMEOUT = 60.0
SOON = 1.0
"""Seconds. A reconcile that is due earlier means that the operator is not idle; many of them are a hot loop."""
VOLATILE = re.compile(
    r"\.metadata\.(uid|resourceVersion|generation|creationTimestamp|labels\.coder\.com/applied-digest)\b"
    r"|\.(status|apiVersion|kind)\b|checksum|\.data\b|clusterIP|nodePort"
)

SPECS: dict[Kind[Any], Manifest] = {
    CONTROL_PLANE: {"operatorAccess": {"disabled": True}},
    PROVISIONER: {"controlPlaneRef": {"name": "one"}},
    WORKSPACE_PROXY: {"controlPlaneRef": {"name": "one"}},
}
BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build)
"""In the order of `SPECS`."""

State = frozenset[tuple[str, str]]
"""Paths and their values."""


class SteadyState(NamedTuple):
    """Everything that the operator controls, when it is idle."""

    stalled: bool
    state: State


@dataclass
class ObservedObject:
    """An object with the operator that reconciles it."""

    operator: Operator
    controller: Controller
    observer: Observer
    coderds: Mapping[str, CoderdServer]
    kind: Kind[Any]
    key: Key
    generation: int = 1
    first_changes: dict[tuple[str, int], Mutation] = field(default_factory=dict)
    """The first change of a field that resulted in a state, by the hash of the state."""
    exemptions: set[str] = field(default_factory=set)
    """The exemptions that were needed."""
    outcomes: Counter[str] = field(default_factory=Counter)
    reconciles: int = 0
    """The number of reconciles of this object, without those of other objects of the same controller."""

    def __post_init__(self) -> None:
        reconcile = self.controller.reconcile

        async def counted(key: Key) -> float | None:
            self.reconciles += key == self.key
            return await reconcile(key)

        self.controller.reconcile = counted

    async def put(self, spec: Manifest) -> bool:
        """Replace the spec; return whether it differs after defaulting."""
        replace = {"op": "replace", "path": "/spec", "value": spec}
        before, live = self.generation, await self.observer.client.patch(self.kind, self.key, [replace])
        self.generation = live.metadata.generation
        return self.generation != before

    async def wait_steady(self) -> SteadyState:
        """Wait until the status is about the current generation and the operator is idle."""
        return await eventually(self._steady_state, TIMEOUT)

    def _steady_state(self) -> SteadyState:
        known = self.operator.informers[self.kind].get(self.key)
        assert known is not None
        assert known.metadata.generation == self.generation, "the spec is not in the operator's cache yet"
        assert known.status.observed_generation == self.generation, "the status is about an older generation"
        self._assert_idle()
        stalled = find(known.status.conditions, "Stalled")
        assert stalled is not None
        assert stalled.reason
        assert stalled.status != "True" or stalled.message
        return SteadyState(stalled.status == "True", frozenset(self._entries(known.status)))

    def _assert_idle(self) -> None:
        """Assert that no reconcile is running or due, all caches are current, and every Deployment is rolled out."""
        queue = self.controller.queue
        assert queue.idle, "a reconcile is queued or running"
        due = queue.next_due(self.key)
        assert due is None or due > SOON, "a reconcile is due immediately"
        cached = [
            (kind.name, child) for kind in CHILDREN for child in self.operator.informers[kind] if self._owns(child)
        ]
        observed = [(kind, child) for (kind, _), child in self.observer.children().items() if self._owns(child)]
        assert {_version(*each) for each in cached} == {_version(*each) for each in observed}, "a cache is stale"
        for kind, child in observed:
            rolled_out = child.manifest.get("status", {}).get("observedGeneration") == child.metadata.generation
            assert kind != DEPLOYMENT.name or rolled_out, "the Deployment is not rolled out"

    def _entries(self, status: Any) -> Iterator[tuple[str, str]]:
        """All fields of children, objects in coderd and conditions that the operator sets."""
        for (kind, key), child in self.observer.children().items():
            if self._owns(child) or (child.controller is None and key.name == self.key.name):
                yield from (each for each in flat(child.manifest, f"{kind} {key}") if not VOLATILE.search(each[0]))
        for plane, coderd in self.coderds.items():
            for held in coderd.state.keys.values():
                if held.id == getattr(status, "provisioner_key_id", None):
                    about = {"name": _without_suffix(held.name), "of": held.organization, "tags": held.tags}
                    yield from flat(about, f"key at {plane}")
            for proxy in coderd.state.proxies.values():
                if proxy.id == getattr(status, "proxy_id", None):
                    about = {"name": proxy.name, "display": proxy.display_name, "icon": proxy.icon}
                    yield from flat(about, f"proxy at {plane}")
        key_name = getattr(status, "provisioner_key_name", "")
        for condition in status.conditions:
            message = condition.message.replace(key_name, _without_suffix(key_name)) if key_name else condition.message
            yield f"condition {condition.type}", f"{condition.status} {condition.reason}: {message}"

    def _owns(self, child: Unstructured) -> bool:
        owner = child.controller
        return owner is not None and (owner.kind, owner.name) == (self.kind.name, self.key.name)


def _without_suffix(key: str) -> str:
    """The name of a key without the random suffix that it has if the name was taken."""
    return re.sub(r"-[0-9a-f]{4}$", "", key)


def _version(kind: str, child: Unstructured) -> tuple[str, Key, str]:
    return kind, child.key, child.metadata.resource_version


@asynccontextmanager
async def observing_objects(admin: Path, kubeconfig: Path, namespace: str) -> AsyncIterator[list[ObservedObject]]:
    """Yield one ready object of each kind."""
    async with (
        rotation_namespace(admin, kubeconfig, namespace, SystemClock()) as place,
        Operator(kubeconfig, [namespace], *BUILDERS, connect_to=routes(place)) as operator,
        observing(admin, [namespace]) as observer,
        rolling_out(observer),
    ):
        observed_objects = []
        for (kind, spec), controller in zip(SPECS.items(), operator.controllers, strict=True):
            key = Key(namespace, f"demo-{kind.name.lower()}")
            await observer.client.create(kind, {"metadata": {"namespace": namespace, "name": key.name}, "spec": spec})
            observed_objects.append(ObservedObject(operator, controller, observer, place.coderds, kind, key))
        for observed in observed_objects:
            await eventually(partial(_is_up, observed), TIMEOUT)
        yield observed_objects


def routes(place: RotationNamespace) -> dict[Endpoint, Endpoint]:
    elsewhere = Endpoint(CODER_URL.removeprefix("http://"), 80)
    return {**place.routes, elsewhere: Endpoint("127.0.0.1", place.coderds["two"].port)}


async def _is_up(observed: ObservedObject) -> bool:
    live = await observed.observer.client.get_manifest(observed.kind, observed.key)
    conditions = {each["type"]: each["status"] for each in live.get("status", {}).get("conditions", [])}
    assert "True" in (conditions.get("Available"), conditions.get("DeploymentReady")), conditions
    return not live["status"].get("retiringKeys")
