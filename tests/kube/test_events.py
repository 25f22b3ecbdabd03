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
from coder_k8s.kube.events import (
    BURST,
    PERIOD,
    REFILL,
    WINDOW,
    EventCorrelator,
    EventKey,
    EventReason,
    Recorder,
    Series,
)
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Object, ObjectMeta
from tests.support import eventually
from tests.support.metrics import sample_value, total

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Object, namespaced=False)
NOW = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def event_key(note: str = "it broke", uid: str = "1") -> EventKey:
    return EventKey("v1", "ConfigMap", Key("space", "demo"), uid, "Warning", "Broken", note, "Reconcile")


def new_correlator(capacity: int = 1000) -> EventCorrelator:
    return EventCorrelator(map(str, itertools.count()).__next__, capacity)


def pop(correlator: EventCorrelator, now: datetime) -> Series:
    series = correlator.pop(now)
    assert series is not None
    return series


class TestCorrelator:
    """The time is an argument, so no test waits."""

    def test_the_second_occurrence_is_due_at_once_and_later_ones_once_per_period(self) -> None:
        correlator = new_correlator()
        assert correlator.record(event_key(), NOW) is None
        first = pop(correlator, NOW)
        assert (first.count, correlator.due) == (1, None)

        correlator.record(event_key(), NOW + SECOND)
        assert pop(correlator, NOW + SECOND) is first
        assert first.count == 2

        for seconds in range(2, 50):
            correlator.record(event_key(), NOW + seconds * SECOND)
        assert correlator.due == NOW + SECOND + PERIOD
        assert correlator.pop(NOW + PERIOD) is None
        assert pop(correlator, NOW + PERIOD + SECOND) is first
        assert (first.count, first.last) == (50, NOW + 49 * SECOND)
        assert correlator.pop() is None

    def test_repeats_before_the_first_write_are_counted(self) -> None:
        correlator = new_correlator()
        for _ in range(3):
            correlator.record(event_key(), NOW)
        assert pop(correlator, NOW).count == 3
        assert len(correlator) == 0

    @pytest.mark.parametrize(("pause", "same"), [(WINDOW, True), (WINDOW + SECOND, False)])
    def test_a_pause_ends_a_series(self, pause: timedelta, same: bool) -> None:
        correlator = new_correlator()
        correlator.record(event_key(), NOW)
        first = pop(correlator, NOW)
        correlator.record(event_key(), NOW + pause)
        assert (pop(correlator, NOW + pause) is first) is same

    def test_the_rate_of_new_events_is_limited_per_object(self) -> None:
        correlator = new_correlator()
        results = [correlator.record(event_key(f"note {number}"), NOW) for number in range(BURST + 5)]
        assert results == [None] * BURST + ["rate_limited"] * 5
        assert correlator.record(event_key("note 0"), NOW) is None, "a repeat is not a new event"
        assert correlator.record(event_key(uid="another"), NOW) is None
        assert correlator.record(event_key("later"), NOW + REFILL - SECOND) == "rate_limited"
        assert correlator.record(event_key("later"), NOW + REFILL) is None
        assert correlator.record(event_key("still later"), NOW + REFILL) == "rate_limited"

    def test_an_event_that_the_rate_limit_drops_is_a_repeat_from_the_second_time_on(self) -> None:
        correlator = new_correlator()
        for number in range(BURST):
            correlator.record(event_key(f"note {number}"), NOW)
        assert not correlator.is_repeat(event_key("one more"), NOW)
        assert correlator.record(event_key("one more"), NOW) == "rate_limited"
        assert correlator.is_repeat(event_key("one more"), NOW + WINDOW)
        assert not correlator.is_repeat(event_key("one more"), NOW + WINDOW + SECOND)
        correlator.record(event_key("later"), NOW + timedelta(hours=1))
        assert correlator._dropped == {}

    def test_the_queue_has_a_capacity(self) -> None:
        correlator = new_correlator(capacity=2)
        results = [correlator.record(event_key(uid=str(number)), NOW) for number in range(3)]
        assert results == [None, None, "queue_full"]
        assert len(correlator) == 2
        pop(correlator, NOW)
        assert correlator.record(event_key(uid="2"), NOW) is None

    def test_ended_series_are_removed(self) -> None:
        correlator = new_correlator()
        for number in range(100):
            correlator.record(event_key(uid=str(number)), NOW)
            correlator.pop(NOW)
        correlator.record(event_key(), NOW + timedelta(hours=1))
        assert len(correlator._series) == len(correlator._buckets) == 1

    @given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from("abc")), max_size=60))
    def test_every_occurrence_is_counted_once(self, history: list[tuple[int, str]]) -> None:
        correlator = new_correlator()
        now, written = NOW, dict[str, int]()
        for seconds, note in history:
            now += seconds * SECOND
            assert correlator.record(event_key(note), now) is None
            while series := correlator.pop(now):
                written[series.name] = series.count
        while series := correlator.pop():
            written[series.name] = series.count
        assert sum(written.values()) == len(history)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def dropped(metrics: Metrics, reason: str) -> float:
    return sample_value(metrics.registry, "coder_k8s_events_dropped_total", reason=reason) or 0


def requests(metrics: Metrics, method: str) -> int:
    return total(metrics.requests, method)


@pytest.fixture
async def client(cluster: ClusterAccess, metrics: Metrics) -> AsyncIterator[Client]:
    async with Http(config.load(cluster.kubeconfig), "test", metrics) as http:
        yield Client(http, "test")


@pytest.fixture
async def demo(client: Client, namespace: str) -> Object:
    return await client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": "demo"}})


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


async def test_fields_of_an_event(
    cluster: ClusterAccess, namespace: str, client: Client, demo: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics, now=lambda: NOW, unique=lambda: "c0ffee")
    async with running(recorder):
        recorder.record(
            CONFIG_MAP, demo, EventReason("LicenseExpiring", "Warning"), "it expires in 7 days", "CheckLicense"
        )
        [event] = await eventually(lambda: events(cluster, namespace))
    assert event["metadata"]["name"] == "demo.c0ffee"
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
            "name": "demo",
            "uid": demo.metadata.uid,
        },
    }


async def test_kubectl_shows_an_event_with_its_count(
    cluster: ClusterAccess, namespace: str, client: Client, demo: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    for _ in range(3):
        recorder.record(CONFIG_MAP, demo, EventReason("LicenseApplied", "Normal"), "the license was uploaded")
    await recorder.flush(10)
    events_output = await asyncio.to_thread(
        cluster.kubectl, "events", "--namespace", namespace, "--for", "configmap/demo"
    )
    described = await asyncio.to_thread(cluster.kubectl, "describe", "configmap", "demo", "--namespace", namespace)
    for output in (events_output, described):
        assert "LicenseApplied" in output
        assert "the license was uploaded" in output
        assert "x3 over" in output


async def test_repeats_become_a_series(
    cluster: ClusterAccess, namespace: str, client: Client, demo: Object, metrics: Metrics
) -> None:
    now = NOW
    recorder = recorder_with(client, metrics, now=lambda: now)

    def series() -> dict[str, Any]:
        [event] = events(cluster, namespace)
        known: dict[str, Any] = event.get("series", {})
        return known

    async with running(recorder):
        recorder.record(CONFIG_MAP, demo, EventReason("Broken", "Warning"), "it broke")
        await eventually(lambda: events(cluster, namespace))
        now += SECOND
        recorder.record(CONFIG_MAP, demo, EventReason("Broken", "Warning"), "it broke")
        await eventually(series)
        assert series() == {"count": 2, "lastObservedTime": "2026-02-03T04:05:07.000007Z"}
        now += SECOND
        for _ in range(50):
            recorder.record(CONFIG_MAP, demo, EventReason("Broken", "Warning"), "it broke")
        recorder.record(CONFIG_MAP, demo, EventReason("Repaired", "Normal"), "another event is written meanwhile")
        await eventually(lambda: len(events(cluster, namespace)) == 2)
    assert requests(metrics, "PATCH") == 1

    await recorder.flush(10)
    [broken] = [event for event in events(cluster, namespace) if event["reason"] == "Broken"]
    assert broken["series"] == {"count": 52, "lastObservedTime": "2026-02-03T04:05:08.000007Z"}


async def test_an_expired_event_is_created_again(
    cluster: ClusterAccess, namespace: str, client: Client, demo: Object, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    recorder.record(CONFIG_MAP, demo, EventReason("Broken", "Warning"), "it broke")
    await recorder.flush(10)
    [event] = events(cluster, namespace)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event['metadata']['name']}"
    assert cluster.request("DELETE", path)[0] == 200

    recorder.record(CONFIG_MAP, demo, EventReason("Broken", "Warning"), "it broke")
    await recorder.flush(10)
    [recreated] = events(cluster, namespace)
    assert recreated["series"]["count"] == 2
    assert recreated["metadata"]["uid"] != event["metadata"]["uid"]
    assert recreated["eventTime"] == event["eventTime"]


async def test_events_of_cluster_scoped_objects_are_in_default(
    cluster: ClusterAccess, namespace: str, client: Client, metrics: Metrics
) -> None:
    recorder = recorder_with(client, metrics)
    recorder.record(
        NAMESPACE,
        await client.get(NAMESPACE, Key("", namespace)),
        EventReason("Labelled", "Normal"),
        "it may run workspaces",
    )
    await recorder.flush(10)
    [event] = [event for event in events(cluster, "default") if event["regarding"]["name"] == namespace]
    assert event["reason"] == "Labelled"


@pytest.mark.parametrize(
    ("name", "note"),
    [("n" * 235 + "." + "m" * 17, "é" * 1000), ("n" * 253, "x" + "…" * 500), ("short", "x" * 1024)],
)
async def test_long_names_and_notes_are_truncated(
    cluster: ClusterAccess, namespace: str, client: Client, metrics: Metrics, name: str, note: str
) -> None:
    recorder = recorder_with(client, metrics)
    demo = await client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": name}})
    recorder.record(CONFIG_MAP, demo, EventReason("Long", "Normal"), note)
    await recorder.flush(10)
    [event] = events(cluster, namespace)
    assert event["note"] == note or note.startswith(event["note"].removesuffix("…"))
    assert 1020 <= len(event["note"].encode()) <= 1024
    assert event["regarding"]["name"] == name


async def test_a_rejected_write_is_counted_and_logged(
    client: Client, demo: Object, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_with(client, metrics)
    with caplog.at_level(logging.WARNING, "coder_k8s.kube.events"):
        async with running(recorder):
            recorder.record(CONFIG_MAP, demo, EventReason("", "Normal"), "an event needs a reason")
            await eventually(lambda: dropped(metrics, "failed") == 1)
    assert "cannot write event" in caplog.text
    assert "needs a reason" not in caplog.text


async def test_the_note_of_a_rejected_warning_is_logged(
    client: Client, demo: Object, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_with(client, metrics)
    with caplog.at_level(logging.WARNING, "coder_k8s.kube.events"):
        async with running(recorder):
            recorder.record(CONFIG_MAP, demo, EventReason("", "Warning"), "Key build is left in Coder")
            await eventually(lambda: dropped(metrics, "failed") == 1)
    assert "Key build is left in Coder" in caplog.text


async def test_a_dropped_event_is_logged_once(
    client: Client, demo: Object, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_with(client, metrics, now=lambda: NOW)
    with caplog.at_level(logging.INFO, "coder_k8s.kube.events"):
        for number in range(BURST):
            recorder.record(CONFIG_MAP, demo, EventReason("Many", "Normal"), f"note {number}")
        for _ in range(3):
            recorder.record(CONFIG_MAP, demo, EventReason("Many", "Normal"), "one too many")
    assert dropped(metrics, "rate_limited") == 3
    assert caplog.text.count("one too many") == 1


@pytest.fixture
def silent_server(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for a server that accepts connections and never responds."""
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


async def test_a_server_that_never_responds_blocks_no_caller(silent_server: Path, metrics: Metrics) -> None:
    objects = [Object(metadata=ObjectMeta(namespace="space", name="demo", uid=str(number))) for number in range(100)]
    async with Http(config.load(silent_server), "test", metrics) as http:
        recorder = recorder_with(Client(http, "test"), metrics, capacity=10)
        async with running(recorder):
            recorder.record(CONFIG_MAP, objects[0], EventReason("First", "Normal"), "this one is being sent")
            await asyncio.sleep(0)
            for demo in objects:
                recorder.record(CONFIG_MAP, demo, EventReason("Repeated", "Normal"), "this one is queued")
            assert dropped(metrics, "queue_full") >= 89
        started = asyncio.get_running_loop().time()
        await recorder.flush(0.05)
        assert asyncio.get_running_loop().time() - started < 2
    assert dropped(metrics, "shutdown") >= 9
    assert dropped(metrics, "queue_full") + dropped(metrics, "shutdown") == 101
