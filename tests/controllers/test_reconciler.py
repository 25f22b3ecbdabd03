"""The parts of a reconcile that all kinds share, on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.controllers.reconciler import Reconciler, Steps
from coder_k8s.controllers.report import StatusReport
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.status import REJECTED_RETRY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.events import EVENT, Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest
from tests.support.kstatus import condition
from tests.support.metrics import total
from tests.support.versions import minor

FIRST, SECOND = "coder.com/first", "coder.com/second"


class Script(Steps[CoderControlPlane, ControlPlaneStatus]):
    """Steps of a test; `calls` lists the calls."""

    conditions = frozenset({"Available", "Exposed"})

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.needed = {FIRST, SECOND}
        self.waits: dict[str, float] = {}
        self.finalize = {FIRST: self._first, SECOND: self._second}

    async def steps(self, seen: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
        self.calls.append("steps")
        report.add("Available", True, reasons.MINIMUM_REPLICAS_READY)
        report.requeue_after(30)
        return seen

    async def _first(self, seen: CoderControlPlane) -> float | None:
        self.calls.append(FIRST)
        return self.waits.get(FIRST)

    async def _second(self, seen: CoderControlPlane) -> float | None:
        self.calls.append(SECOND)
        return self.waits.get(SECOND)

    def needs(self, finalizer: str, seen: CoderControlPlane) -> bool:
        return finalizer in self.needed

    async def forget(self, key: Key) -> None:
        self.calls.append("forget")


class World:
    """A control plane in the cache, and a reconciler for it."""

    def __init__(self, client: Client, metrics: Metrics, namespace: str) -> None:
        recorder = Recorder(client, "tests", "tests", metrics)
        runtime = Runtime(
            client=client, coderd=Connections(), recorder=recorder, metrics=metrics, namespaces=[namespace]
        )
        self.client, self.metrics, self.recorder = client, metrics, recorder
        self.key = Key(namespace, "demo")
        self.context = Context(runtime, CONTROL_PLANE, ())
        self.script = Script()

    async def make(self, **metadata: Any) -> CoderControlPlane:
        named = {"namespace": self.key.namespace, "name": self.key.name, **metadata}
        made = await self.client.create(CONTROL_PLANE, {"metadata": named, "spec": {}})
        self.show(made)
        return made

    def show(self, *seen: CoderControlPlane) -> None:
        """Put an object into the cache, like a list."""
        version = max((each.metadata.resource_version for each in seen), default="1")
        self.context.objects.replace(self.key.namespace, seen, version)

    async def live(self) -> Manifest:
        return await self.client.get_manifest(CONTROL_PLANE, self.key)

    async def reconcile(self) -> float | None:
        return await Reconciler(self.context, self.script).reconcile(self.key)

    async def events(self) -> list[Manifest]:
        await self.recorder.flush(within=5)
        pages = [page async for page in self.client.list(EVENT, self.key.namespace)]
        return [msgspec.json.decode(item) for page in pages for item in page.items]

    async def delete(self) -> None:
        await self.client.delete(CONTROL_PLANE, await self.client.get(CONTROL_PLANE, self.key))
        self.show(await self.client.get(CONTROL_PLANE, self.key))


@pytest.fixture
async def world(cluster: ClusterAccess, crds: None, namespace: str) -> AsyncIterator[World]:
    metrics = Metrics()
    async with Http(load(cluster.kubeconfig), "tests", metrics) as http:
        yield World(Client(http, "tests"), metrics, namespace)


async def test_the_steps_decide_the_status_and_the_requeue(world: World) -> None:
    await world.make()
    assert await world.reconcile() == 30
    assert condition(await world.live(), "Ready")["status"] == "True"


async def test_a_condition_that_is_not_reported_is_removed_unless_retained(world: World) -> None:
    await world.make()
    exposed = {"type": "Exposed", "status": "True", "reason": "Applied", "message": ""}
    status = {"conditions": [{**exposed, "lastTransitionTime": "2029-01-01T00:00:00Z"}]}
    world.show(await world.client.merge(CONTROL_PLANE, world.key, {"status": status}, "status"))

    class Retaining(Script):
        async def steps(self, seen: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
            report.retain_conditions = True
            return await super().steps(seen, report)

    await Reconciler(world.context, Retaining()).reconcile(world.key)
    assert condition(await world.live(), "Exposed")["status"] == "True"
    await world.reconcile()
    assert condition(await world.live(), "Exposed") == {}


async def test_an_error_of_the_api_server_is_reported_and_raised(world: World) -> None:
    class Failing(Script):
        async def steps(self, seen: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
            raise errors.ServerError(500, "InternalError", "etcdserver: request timed out")

    await world.make()
    with pytest.raises(errors.ServerError):
        await Reconciler(world.context, Failing()).reconcile(world.key)
    assert condition(await world.live(), "Ready")["reason"] == "Retrying"


async def test_a_deleted_object_is_forgotten(world: World) -> None:
    assert await world.reconcile() is None
    assert world.script.calls == ["forget"]


async def test_nothing_is_done_for_a_paused_object_even_if_it_is_being_deleted(world: World) -> None:
    await world.make(finalizers=[FIRST], annotations={PAUSED: "true"})
    await world.delete()
    assert await world.reconcile() is None
    assert world.script.calls == []
    ready = condition(await world.live(), "Ready")
    assert ready["reason"] == "Paused"
    assert "annotation coder.com/paused blocks its cleanup; remove the annotation" in ready["message"]
    await world.reconcile()
    events = {event["reason"]: event for event in await world.events()}
    assert events["DeletionPaused"]["note"] == ready["message"]
    assert "series" not in events["DeletionPaused"]


async def test_a_paused_deletion_is_reported_once_whatever_changes_in_the_spec(world: World) -> None:
    await world.make(finalizers=[FIRST], annotations={PAUSED: "true"})
    await world.delete()
    for replicas in (2, 3):
        await world.reconcile()
        world.show(await world.client.merge(CONTROL_PLANE, world.key, {"spec": {"replicas": replicas}}))
    await world.reconcile()
    [event] = [each for each in await world.events() if each["reason"] == "DeletionPaused"]
    assert "series" not in event


async def test_resuming_a_deletion_is_reported(world: World) -> None:
    await world.make(finalizers=[FIRST], annotations={PAUSED: "true"})
    await world.delete()
    await world.reconcile()
    world.show(await world.client.merge(CONTROL_PLANE, world.key, {"metadata": {"annotations": {PAUSED: None}}}))
    world.script.waits = {FIRST: 5.0}
    assert await world.reconcile() == 5.0
    assert await world.reconcile() == 5.0
    assert world.script.calls == [FIRST, FIRST]
    ready = condition(await world.live(), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Deleting")
    assert ready["message"] == "The object is being deleted; its cleanup is in progress"
    assert [event["reason"] for event in await world.events()].count("Resumed") == 1
    world.script.waits = {}
    await world.reconcile()
    with pytest.raises(errors.NotFound):
        await world.live()


async def test_a_finalizer_is_removed_after_its_cleanup(world: World) -> None:
    await world.make(finalizers=[SECOND, FIRST, "example.com/theirs"])
    await world.delete()
    world.script.waits = {FIRST: 5.0}
    assert await world.reconcile() == 5.0
    assert world.script.calls == [FIRST, SECOND]
    assert (await world.live())["metadata"]["finalizers"] == [FIRST, "example.com/theirs"]
    world.script.waits = {}
    assert await world.reconcile() is None
    assert (await world.live())["metadata"]["finalizers"] == ["example.com/theirs"]
    await world.client.merge(CONTROL_PLANE, world.key, {"metadata": {"finalizers": None}})


async def test_a_new_object_of_the_same_name_is_not_cleaned_up(world: World) -> None:
    await world.make(finalizers=[FIRST])
    await world.delete()
    await world.client.merge(CONTROL_PLANE, world.key, {"metadata": {"finalizers": None}})
    named = {"namespace": world.key.namespace, "name": world.key.name}
    await world.client.create(CONTROL_PLANE, {"metadata": named, "spec": {}})
    with pytest.raises(errors.Conflict):
        await world.reconcile()
    assert world.script.calls == []


async def test_a_finalizer_that_is_not_needed_is_removed(world: World) -> None:
    await world.make(finalizers=[FIRST, SECOND])
    world.script.needed = {SECOND}
    await world.reconcile()
    live = await world.live()
    assert live["metadata"]["finalizers"] == [SECOND]
    await world.client.merge(CONTROL_PLANE, world.key, {"metadata": {"finalizers": None}})


async def test_rejected_status_is_reported_by_an_event_that_names_the_field_and_retried_slowly(
    world: World, cluster: ClusterAccess
) -> None:
    await world.make()
    field = "phase" if minor(cluster) == 30 else "status.phase"  # the API server's own name for it

    class Bogus(Script):
        async def steps(self, seen: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
            report.status.phase, report.status.version = "Bogus", "s3cret"
            return seen

    assert await Reconciler(world.context, Bogus()).reconcile(world.key) == REJECTED_RETRY
    [event] = await world.events()
    message = f"The API server rejects the status of this object because of {field}. Correct this field."
    assert (event["reason"], event["note"]) == ("StatusRejected", message)
    assert total(world.metrics.status_rejected) == 1
    assert "status" not in await world.live()
