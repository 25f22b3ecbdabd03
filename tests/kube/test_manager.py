import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.election import Election, ElectionOptions
from coder_k8s.kube.events import EventReason, Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer, WatchOptions
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.lease import LEASE
from coder_k8s.kube.manager import Manager, liveness, readiness
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Object
from tests.support import eventually

UNKNOWN = Kind("unknown.example", "v1", "Nothing", "nothings", Object)


@pytest.fixture
async def http(cluster: ClusterAccess) -> AsyncIterator[Http]:
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        yield http


class Process:
    """The parts of one process; each reconcile waits until `finish` is set."""

    def __init__(
        self, http: Http, namespace: str, identity: str, kind: Kind[Any] = CONFIG_MAP, grace: float = 25
    ) -> None:
        metrics = Metrics()
        self.lease = Key(namespace, "lease")
        options = ElectionOptions(retry_period=0.2, jitter=lambda: 0.0)
        self.election = Election(http, self.lease, identity, field_manager=identity, metrics=metrics, options=options)
        self.client = Client(http, identity, fence=self.election.check)
        self.informer = Informer(
            self.client, kind, (namespace,), metrics=metrics, options=WatchOptions(missing_kind_interval=0.1)
        )
        self.recorder = Recorder(self.client, "test", identity, metrics)
        controller = Controller("test", self.reconcile, metrics=metrics, workers=8)
        controller.watch(self.informer)
        self.manager = Manager(
            servers=[],
            informers=[self.informer],
            election=self.election,
            controllers=[controller],
            recorder=self.recorder,
            grace=grace,
        )
        self.started: list[Key] = []
        self.finished: list[Key] = []
        self.finish = asyncio.Event()
        self.stopping = asyncio.Event()
        self.running = asyncio.create_task(self.manager.run(self.stopping))

    async def reconcile(self, key: Key) -> None:
        self.started.append(key)
        await self.finish.wait()
        await self.client.merge(CONFIG_MAP, key, {"data": {"by": self.election.identity}})
        self.recorder.record(
            CONFIG_MAP, await self.client.get(CONFIG_MAP, key), EventReason("Finished", "Normal"), "the last write"
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


async def create_config_map(http: Http, namespace: str) -> Key:
    key = Key(namespace, "demo")
    await Client(http, "user").create(CONFIG_MAP, {"metadata": {"name": key.name, "namespace": namespace}})
    return key


async def test_a_standby_has_a_synced_cache_and_takes_over_after_the_last_reconcile(
    start: Start, http: Http, cluster: ClusterAccess, namespace: str
) -> None:
    key = await create_config_map(http, namespace)
    leader = start("alice")
    await eventually(lambda: key in leader.started)
    standby = start("bob")
    await asyncio.wait_for(standby.informer.synced.wait(), 5)
    assert standby.informer.get(key) is not None

    leader.stopping.set()
    assert await leader.holder() == "alice", "it holds the Lease while it reconciles"
    assert not standby.started
    leader.finish.set()
    await asyncio.wait_for(leader.running, 5)

    assert leader.finished == [key]
    assert "the last write" in cluster.kubectl("get", "events.v1.events.k8s.io", "-n", namespace)
    await eventually(lambda: key in standby.started, timeout=2)
    assert await standby.holder() == "bob"
    standby.finish.set()
    await eventually(lambda: key in standby.finished)


async def test_a_reconcile_is_cancelled_after_the_grace_period(start: Start, http: Http, namespace: str) -> None:
    key = await create_config_map(http, namespace)
    process = start("alice", grace=0.2)
    await eventually(lambda: key in process.started)
    process.stopping.set()
    await asyncio.wait_for(process.running, 5)
    assert not process.finished
    assert await process.holder() == ""


async def test_a_process_that_loses_the_lease_stops(
    start: Start, http: Http, cluster: ClusterAccess, namespace: str
) -> None:
    key = await create_config_map(http, namespace)
    process = start("alice")
    await eventually(lambda: key in process.started)
    cluster.kubectl("patch", "lease", "lease", "-n", namespace, "-p", '{"spec": {"holderIdentity": "mallory"}}')
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(process.running, 5)
    assert not process.finished
    assert await process.holder() == "mallory"


async def test_a_standby_and_an_unsynced_process_stop(start: Start, http: Http, namespace: str) -> None:
    leader = start("alice")
    await eventually(lambda: leader.election.leading)
    standby, unsynced = start("bob"), start("carol", kind=UNKNOWN)
    await eventually(lambda: standby.informer.synced.is_set() and unsynced.informer.error)
    for process in (standby, unsynced):
        process.stopping.set()
        await asyncio.wait_for(process.running, 5)
    assert await leader.holder() == "alice"


async def test_a_process_does_not_lead_before_its_caches_are_synced(start: Start) -> None:
    process = start("alice", kind=UNKNOWN)
    (check,) = (c for name, c in readiness([process.informer], 180).items() if name == f"cache {UNKNOWN}")
    assert check() == "not synced"
    await eventually(lambda: "install its CustomResourceDefinition" in check())
    assert not process.election.leading
    assert await process.holder() == ""


async def test_an_idle_watch_fails_liveness_and_readiness(http: Http, namespace: str) -> None:
    time = 1000.0
    options = WatchOptions(clock=lambda: time)
    informer = Informer(Client(http, "test"), CONFIG_MAP, (namespace,), metrics=Metrics(), options=options)
    informer.synced.set()
    alive = liveness([informer], 180)["watch configmaps"]
    assert alive() == ""
    time += 179
    assert alive() == ""
    time += 2
    assert alive() == "idle for 181 s"
    assert sorted(filter(None, (check() for check in readiness([informer], 180).values()))) == ["idle for 181 s"]
