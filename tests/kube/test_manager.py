import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.election import Election
from coder_k8s.kube.events import EventReason, Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.lease import LEASE
from coder_k8s.kube.manager import Manager, liveness, readiness
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Object
from tests.support import eventually

UNKNOWN = Kind("nobody.example", "v1", "Nothing", "nothings", Object)


@pytest.fixture
async def http(cluster: ClusterAccess) -> AsyncIterator[Http]:
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        yield http


class Process:
    """What one process would be made of; its reconciler keeps each key until `finish` is set."""

    def __init__(
        self, http: Http, namespace: str, identity: str, kind: Kind[Any] = CONFIG_MAP, grace: float = 25
    ) -> None:
        metrics = Metrics()
        self.lease = Key(namespace, "lease")
        self.election = Election(
            http, self.lease, identity, field_manager=identity, metrics=metrics, retry_period=0.2, jitter=lambda: 0.0
        )
        self.client = Client(http, identity, fence=self.election.check)
        self.informer = Informer(self.client, kind, (namespace,), metrics=metrics, missing_kind_interval=0.1)
        self.recorder = Recorder(self.client, "test", identity, metrics)
        controller = Controller("test", self.reconcile, metrics=metrics)
        controller.watch(self.informer)
        self.manager = Manager(
            servers=[],
            informers=[self.informer],
            election=self.election,
            controllers=[controller],
            recorder=self.recorder,
            grace=grace,
        )
        self.began: list[Key] = []
        self.finished: list[Key] = []
        self.finish = asyncio.Event()
        self.stopping = asyncio.Event()
        self.running = asyncio.create_task(self.manager.run(self.stopping))

    async def reconcile(self, key: Key) -> None:
        self.began.append(key)
        await self.finish.wait()
        await self.client.merge(CONFIG_MAP, key, {"data": {"by": self.election.identity}})
        self.recorder.record(
            CONFIG_MAP, await self.client.get(CONFIG_MAP, key), EventReason("Finished", "Normal"), "as the last thing"
        )
        self.finished.append(key)

    async def holder(self) -> str:
        try:
            return (await self.client.get(LEASE, self.lease)).spec.holder_identity
        except errors.NotFound:
            return ""


Start = Callable[..., Process]


@pytest.fixture
async def start(http: Http, namespace: str) -> AsyncIterator[Start]:
    processes: list[Process] = []

    def start(*args: Any, **options: Any) -> Process:
        processes.append(Process(http, namespace, *args, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.running.cancel()
    await asyncio.gather(*(process.running for process in processes), return_exceptions=True)


async def a_config_map(http: Http, namespace: str) -> Key:
    key = Key(namespace, "thing")
    await Client(http, "user").create(CONFIG_MAP, {"metadata": {"name": key.name, "namespace": namespace}})
    return key


async def test_a_standby_is_warm_and_takes_over_when_the_leader_has_finished(
    start: Start, http: Http, cluster: ClusterAccess, namespace: str
) -> None:
    key = await a_config_map(http, namespace)
    leader = start("alice")
    await eventually(lambda: key in leader.began)
    standby = start("bob")
    await asyncio.wait_for(standby.informer.synced.wait(), 5)
    assert standby.informer.get(key) is not None

    leader.stopping.set()
    assert await leader.holder() == "alice", "it still works, so it still leads"
    assert not standby.began
    leader.finish.set()
    await asyncio.wait_for(leader.running, 5)

    assert leader.finished == [key]
    assert "as the last thing" in cluster.kubectl("get", "events.v1.events.k8s.io", "-n", namespace)
    await eventually(lambda: key in standby.began, timeout=2)
    assert await standby.holder() == "bob"
    standby.finish.set()
    await eventually(lambda: key in standby.finished)


async def test_a_reconcile_that_does_not_end_is_cut_off(start: Start, http: Http, namespace: str) -> None:
    key = await a_config_map(http, namespace)
    process = start("alice", grace=0.2)
    await eventually(lambda: key in process.began)
    process.stopping.set()
    await asyncio.wait_for(process.running, 5)
    assert not process.finished
    assert await process.holder() == ""


async def test_who_loses_the_lease_stops(start: Start, http: Http, cluster: ClusterAccess, namespace: str) -> None:
    key = await a_config_map(http, namespace)
    process = start("alice")
    await eventually(lambda: key in process.began)
    cluster.kubectl("patch", "lease", "lease", "-n", namespace, "-p", '{"spec": {"holderIdentity": "mallory"}}')
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(process.running, 5)
    assert not process.finished
    assert await process.holder() == "mallory"


async def test_a_process_stops_also_while_it_waits(start: Start, http: Http, namespace: str) -> None:
    leader = start("alice")
    await eventually(lambda: leader.election.leading)
    standby, blind = start("bob"), start("carol", kind=UNKNOWN)
    await eventually(lambda: standby.informer.synced.is_set() and blind.informer.error)
    for process in (standby, blind):
        process.stopping.set()
        await asyncio.wait_for(process.running, 5)
    assert await leader.holder() == "alice"


async def test_a_cache_that_cannot_be_filled_keeps_the_process_from_leading(start: Start) -> None:
    process = start("alice", kind=UNKNOWN)
    (check,) = (c for name, c in readiness([process.informer], 180).items() if name == f"cache {UNKNOWN}")
    assert check() == "not listed yet"
    await eventually(lambda: "install its CustomResourceDefinition" in check())
    assert not process.election.leading
    assert await process.holder() == ""


async def test_silence_fails_liveness_and_readiness(http: Http, namespace: str) -> None:
    time = 1000.0
    informer = Informer(Client(http, "test"), CONFIG_MAP, (namespace,), metrics=Metrics(), clock=lambda: time)
    informer.synced.set()
    alive = liveness([informer], 180)["watch configmaps"]
    assert alive() == ""
    time += 179
    assert alive() == ""
    time += 2
    assert alive() == "silent for 181 s"
    assert sorted(filter(None, (check() for check in readiness([informer], 180).values()))) == ["silent for 181 s"]
