import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.election import Election, ElectionOptions
from coder_k8s.kube.events import EventReason, Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer, WatchOptions
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.lease import LEASE
from coder_k8s.kube.manager import LISTS_AT_A_TIME, Manager, liveness, readiness
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Object, Unstructured
from tests.support import eventually
from tests.support.api import Api, listing, refuse, watch

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


KINDS = [Kind("example.com", "v1", f"Kind{number}", f"kind{number}s", Unstructured) for number in range(12)]


async def unexpected(key: Key) -> None:
    raise AssertionError(f"reconciled {key}")


@asynccontextmanager
async def running_manager(api: Api, fill_timeout: float = 30) -> AsyncIterator[list[Informer[Any]]]:
    """Run a manager with an informer for each of the kinds, then stop it; yield the informers."""
    metrics, stopping = Metrics(), asyncio.Event()
    async with api, Http(api.config, "test", metrics) as http:
        client = Client(http, "test")
        options = WatchOptions(backoff=Backoff(0.02, 0.1))
        informers = [Informer(client, kind, metrics=metrics, options=options) for kind in KINDS]
        recorder = Recorder(client, "test", "test", metrics)
        idle = Controller("idle", unexpected, metrics=metrics, workers=1)
        manager = Manager(
            servers=[],
            informers=informers,
            election=None,
            controllers=[idle],
            recorder=recorder,
            fill_timeout=fill_timeout,
        )
        running = asyncio.create_task(manager.run(stopping))
        try:
            yield informers
        finally:
            stopping.set()
            await asyncio.wait_for(running, 5)


async def test_the_lists_at_startup_share_few_connections_and_come_before_the_watches() -> None:
    connections: list[int] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await watch()(request)
        connections.append(api.connections)
        return await listing(5)(request)

    api = Api(respond)
    async with running_manager(api):
        await eventually(lambda: len(api.requests) == 2 * len(KINDS))
        assert ["watch" in seen.query for seen in api.requests] == [False] * len(KINDS) + [True] * len(KINDS)
        assert max(connections) <= LISTS_AT_A_TIME
        assert api.connections == len(KINDS)


async def test_a_list_that_fails_at_startup_is_repeated_and_does_not_delay_other_watches() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(KINDS[0].plural) and not working.is_set():
            return await refuse(403, "Forbidden")(request)
        return await (watch() if "watch" in request.query else listing(5))(request)

    working = asyncio.Event()
    async with running_manager(Api(respond)) as informers:
        await eventually(lambda: all(informer.synced.is_set() for informer in informers[1:]) and informers[0].error)
        assert "forbidden" in informers[0].error.lower()
        working.set()
        await asyncio.wait_for(informers[0].synced.wait(), 10)


async def test_a_slow_list_at_startup_does_not_delay_the_watches_of_other_kinds() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(KINDS[0].plural):
            slow.append(request.path)
            await asyncio.Event().wait()
        return await (watch() if "watch" in request.query else listing(5))(request)

    slow: list[str] = []
    api = Api(respond)
    async with running_manager(api, fill_timeout=1) as informers:
        await eventually(lambda: sum("watch" in seen.query for seen in api.requests) == len(KINDS) - 1)
        await eventually(lambda: len(slow) == 2)  # repeated by the informer
        assert not informers[0].synced.is_set()


async def test_a_process_stops_while_a_list_at_startup_hangs() -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    reached = asyncio.Event()
    async with running_manager(Api(hang)):
        await asyncio.wait_for(reached.wait(), 10)


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
