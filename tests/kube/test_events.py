import asyncio
import itertools
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import config
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import BURST, PERIOD, REFILL, WINDOW, EventCorrelator, Fact, Recorder, Series
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Object, ObjectMeta
from tests.support import eventually

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Object, namespaced=False)
NOW = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def fact(note: str = "it broke", uid: str = "1") -> Fact:
    return Fact("v1", "ConfigMap", Key("space", "thing"), uid, "Warning", "Broken", note, "Reconcile")


def ledger(capacity: int = 1000) -> EventCorrelator:
    return EventCorrelator(map(str, itertools.count()).__next__, capacity)


def take(ledger: EventCorrelator, now: datetime) -> Series:
    series = ledger.take(now)
    assert series is not None
    return series


class TestLedger:
    """Time is an argument here, so that minutes take none."""

    def test_second_occurrence_is_due_at_once_and_later_ones_once_in_a_period(self) -> None:
        book = ledger()
        assert book.tell(fact(), NOW) is None
        first = take(book, NOW)
        assert (first.told, book.due) == (1, None)

        book.tell(fact(), NOW + SECOND)
        assert take(book, NOW + SECOND) is first
        assert first.told == 2

        for seconds in range(2, 50):
            book.tell(fact(), NOW + seconds * SECOND)
        assert book.due == NOW + SECOND + PERIOD
        assert book.take(NOW + PERIOD) is None
        assert take(book, NOW + PERIOD + SECOND) is first
        assert (first.told, first.last) == (50, NOW + 49 * SECOND)
        assert book.take() is None

    def test_repeats_before_the_first_write_go_with_it(self) -> None:
        book = ledger()
        for _ in range(3):
            book.tell(fact(), NOW)
        assert take(book, NOW).told == 3
        assert len(book) == 0

    @pytest.mark.parametrize(("silence", "same"), [(WINDOW, True), (WINDOW + SECOND, False)])
    def test_silence_ends_a_series(self, silence: timedelta, same: bool) -> None:
        book = ledger()
        book.tell(fact(), NOW)
        first = take(book, NOW)
        book.tell(fact(), NOW + silence)
        assert (take(book, NOW + silence) is first) is same

    def test_each_object_has_an_allowance_of_new_events(self) -> None:
        book = ledger()
        answers = [book.tell(fact(f"note {number}"), NOW) for number in range(BURST + 5)]
        assert answers == [None] * BURST + ["rate_limited"] * 5
        assert book.tell(fact("note 0"), NOW) is None, "a repeat is not a new event"
        assert book.tell(fact(uid="another"), NOW) is None
        assert book.tell(fact("later"), NOW + REFILL - SECOND) == "rate_limited"
        assert book.tell(fact("later"), NOW + REFILL) is None
        assert book.tell(fact("still later"), NOW + REFILL) == "rate_limited"

    def test_only_so_many_wait(self) -> None:
        book = ledger(capacity=2)
        answers = [book.tell(fact(uid=str(number)), NOW) for number in range(3)]
        assert answers == [None, None, "queue_full"]
        assert len(book) == 2
        take(book, NOW)
        assert book.tell(fact(uid="2"), NOW) is None

    def test_nothing_is_remembered_for_ever(self) -> None:
        book = ledger()
        for number in range(100):
            book.tell(fact(uid=str(number)), NOW)
            book.take(NOW)
        book.tell(fact(), NOW + timedelta(hours=1))
        assert len(book._series) == len(book._allowance) == 1

    @given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from("abc")), max_size=60))
    def test_every_occurrence_is_counted_once(self, history: list[tuple[int, str]]) -> None:
        book = ledger()
        now, written = NOW, dict[str, int]()
        for seconds, note in history:
            now += seconds * SECOND
            assert book.tell(fact(note), now) is None
            while series := book.take(now):
                written[series.name] = series.told
        while series := book.take():
            written[series.name] = series.told
        assert sum(written.values()) == len(history)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def dropped(metrics: Metrics, why: str) -> float:
    return metrics.registry.get_sample_value("coder_k8s_events_dropped_total", {"reason": why}) or 0


def requests(metrics: Metrics, method: str) -> float:
    samples = [sample for metric in metrics.requests.collect() for sample in metric.samples]
    chosen = [sample for sample in samples if sample.name.endswith("_total") and sample.labels["method"] == method]
    return sum(sample.value for sample in chosen)


@pytest.fixture
async def client(cluster: ClusterAccess, metrics: Metrics) -> AsyncIterator[Client]:
    async with Http(config.load(cluster.kubeconfig), "test", metrics) as http:
        yield Client(http, "test")


@pytest.fixture
async def thing(client: Client, namespace: str) -> Object:
    return await client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": "thing"}})


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def events(cluster: ClusterAccess, namespace: str) -> list[dict[str, Any]]:
    status, body = cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    assert status == 200
    items: list[dict[str, Any]] = json.loads(body)["items"]
    return items


def recorder_with(client: Client, metrics: Metrics, **options: Any) -> Recorder:
    return Recorder(client, "coder.com/test", "test-0", metrics, **options)


async def test_an_event_as_the_api_server_keeps_it(
    cluster: ClusterAccess, namespace: str, client: Client, thing: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics, now=lambda: NOW, unique=lambda: "c0ffee")
    async with running(recorder):
        recorder.warning(CONFIG_MAP, thing, "LicenseExpiring", "it expires in 7 days", "CheckLicense")
        [event] = await eventually(lambda: events(cluster, namespace))
    assert event["metadata"]["name"] == "thing.c0ffee"
    known = {name: event[name] for name in event if not name.startswith("deprecated") and name != "metadata"}
    assert known == {
        "eventTime": "2026-02-03T04:05:06.000007Z",
        "type": "Warning",
        "reason": "LicenseExpiring",
        "note": "it expires in 7 days",
        "action": "CheckLicense",
        "reportingController": "coder.com/test",
        "reportingInstance": "test-0",
        "regarding": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": namespace,
            "name": "thing",
            "uid": thing.metadata.uid,
        },
    }


async def test_kubectl_shows_it_with_its_count(
    cluster: ClusterAccess, namespace: str, client: Client, thing: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    for _ in range(3):
        recorder.normal(CONFIG_MAP, thing, "LicenseApplied", "the license was uploaded")
    await recorder.flush(10)
    listed = await asyncio.to_thread(cluster.kubectl, "events", "--namespace", namespace, "--for", "configmap/thing")
    described = await asyncio.to_thread(cluster.kubectl, "describe", "configmap", "thing", "--namespace", namespace)
    for output in (listed, described):
        assert "LicenseApplied" in output
        assert "the license was uploaded" in output
        assert "x3 over" in output


async def test_repeats_become_a_series(
    cluster: ClusterAccess, namespace: str, client: Client, thing: Object, metrics: Metrics
) -> None:
    now = NOW
    recorder = recorder_with(client, metrics, now=lambda: now)

    def series() -> dict[str, Any]:
        [event] = events(cluster, namespace)
        known: dict[str, Any] = event.get("series", {})
        return known

    async with running(recorder):
        recorder.warning(CONFIG_MAP, thing, "Broken", "it broke")
        await eventually(lambda: events(cluster, namespace))
        now += SECOND
        recorder.warning(CONFIG_MAP, thing, "Broken", "it broke")
        await eventually(series)
        assert series() == {"count": 2, "lastObservedTime": "2026-02-03T04:05:07.000007Z"}
        now += SECOND
        for _ in range(50):
            recorder.warning(CONFIG_MAP, thing, "Broken", "it broke")
        recorder.normal(CONFIG_MAP, thing, "Repaired", "another event is written meanwhile")
        await eventually(lambda: len(events(cluster, namespace)) == 2)
    assert requests(metrics, "PATCH") == 1

    await recorder.flush(10)
    [broken] = [event for event in events(cluster, namespace) if event["reason"] == "Broken"]
    assert broken["series"] == {"count": 52, "lastObservedTime": "2026-02-03T04:05:08.000007Z"}


async def test_an_event_that_vanished_is_created_again(
    cluster: ClusterAccess, namespace: str, client: Client, thing: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    recorder.warning(CONFIG_MAP, thing, "Broken", "it broke")
    await recorder.flush(10)
    [event] = events(cluster, namespace)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event['metadata']['name']}"
    assert cluster.request("DELETE", path)[0] == 200

    recorder.warning(CONFIG_MAP, thing, "Broken", "it broke")
    await recorder.flush(10)
    [again] = events(cluster, namespace)
    assert again["series"]["count"] == 2
    assert again["metadata"]["uid"] != event["metadata"]["uid"]
    assert again["eventTime"] == event["eventTime"]


async def test_what_has_no_namespace_has_its_events_in_default(
    cluster: ClusterAccess, namespace: str, client: Client, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    recorder.normal(NAMESPACE, await client.get(NAMESPACE, Key("", namespace)), "Labelled", "it may hold workspaces")
    await recorder.flush(10)
    [event] = [event for event in events(cluster, "default") if event["regarding"]["name"] == namespace]
    assert event["reason"] == "Labelled"


@pytest.mark.parametrize(
    ("name", "note"),
    [("n" * 235 + "." + "m" * 17, "é" * 1000), ("n" * 253, "x" + "…" * 500), ("short", "x" * 1024)],
)
async def test_names_and_notes_fit(
    cluster: ClusterAccess, namespace: str, client: Client, metrics: Metrics, name: str, note: str
) -> None:
    recorder = recorder_with(client, metrics)
    thing = await client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": name}})
    recorder.normal(CONFIG_MAP, thing, "Long", note)
    await recorder.flush(10)
    [event] = events(cluster, namespace)
    assert event["note"] == note or note.startswith(event["note"].removesuffix("…"))
    assert 1020 <= len(event["note"].encode()) <= 1024
    assert event["regarding"]["name"] == name


async def test_a_refused_write_is_counted_and_logged(
    client: Client, thing: Object, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_with(client, metrics)
    with caplog.at_level(logging.WARNING, "coder_k8s.kube.events"):
        async with running(recorder):
            recorder.normal(CONFIG_MAP, thing, "", "an event needs a reason")
            await eventually(lambda: dropped(metrics, "failed") == 1)
    assert "cannot write event" in caplog.text
    assert "needs a reason" not in caplog.text


async def test_the_note_of_a_refused_warning_is_logged(
    client: Client, thing: Object, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_with(client, metrics)
    with caplog.at_level(logging.WARNING, "coder_k8s.kube.events"):
        async with running(recorder):
            recorder.warning(CONFIG_MAP, thing, "", "Key build is left in Coder")
            await eventually(lambda: dropped(metrics, "failed") == 1)
    assert "Key build is left in Coder" in caplog.text


@pytest.fixture
def silent_server(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for a server that accepts connections and says nothing, ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        path = tmp_path / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                    "current-context": "c",
                }
            )
        )
        yield path


async def test_a_dead_api_server_blocks_nobody(silent_server: Path, metrics: Metrics) -> None:
    things = [Object(metadata=ObjectMeta(namespace="space", name="thing", uid=str(number))) for number in range(100)]
    async with Http(config.load(silent_server), "test", metrics) as http:
        recorder = recorder_with(Client(http, "test"), metrics, capacity=10)
        async with running(recorder):
            recorder.normal(CONFIG_MAP, things[0], "First", "this one is being sent")
            await asyncio.sleep(0)
            for thing in things:
                recorder.normal(CONFIG_MAP, thing, "Told", "to nobody")
            assert dropped(metrics, "queue_full") >= 89
        began = asyncio.get_running_loop().time()
        await recorder.flush(0.05)
        assert asyncio.get_running_loop().time() - began < 2
    assert dropped(metrics, "shutdown") >= 9
    assert dropped(metrics, "queue_full") + dropped(metrics, "shutdown") == 101
