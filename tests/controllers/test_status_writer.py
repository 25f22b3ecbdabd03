"""Status writes, with concurrent writes by other clients."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.controllers.report import Report, StatusReport
from coder_k8s.controllers.status import StatusRejected, StatusWriter
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.events import EVENT, Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest
from tests.support.kstatus import condition
from tests.support.log_lines import log_lines
from tests.support.metrics import total

OWNED = frozenset({"Available", "Exposed"})
EARLY, LATE = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)
FOREIGN = {
    "type": "Audited",
    "status": "True",
    "reason": "Looked",
    "message": "by another controller",
    "lastTransitionTime": "2029-01-01T00:00:00Z",
}


@dataclass
class Harness:
    """A control plane on a real API server, and a writer of its status."""

    client: Client
    metrics: Metrics
    recorder: Recorder
    namespace: str
    now: datetime = EARLY

    def __post_init__(self) -> None:
        self.cache: Cache[CoderControlPlane] = Cache()
        self.key = Key(self.namespace, "demo")
        self.writer = StatusWriter(
            self.client, CONTROL_PLANE, self.cache, self.recorder, "tests", now=lambda: self.now, metrics=self.metrics
        )

    async def create(self) -> CoderControlPlane:
        manifest = {"metadata": {"namespace": self.namespace, "name": "demo"}, "spec": {}}
        return await self.client.create(CONTROL_PLANE, manifest)

    async def get(self) -> CoderControlPlane:
        return await self.client.get(CONTROL_PLANE, self.key)

    async def manifest(self) -> Manifest:
        return await self.client.get_manifest(CONTROL_PLANE, self.key)

    async def label(self, value: str) -> None:
        await self.client.merge(CONTROL_PLANE, self.key, {"metadata": {"labels": {"edited": value}}})

    async def add_condition(self, entry: dict[str, Any]) -> CoderControlPlane:
        """Add a condition like another controller, which keeps the others."""
        conditions = (await self.manifest()).get("status", {}).get("conditions", [])
        patch = {"status": {"conditions": [*conditions, entry]}}
        return await self.client.merge(CONTROL_PLANE, self.key, patch, "status")

    async def write(self, seen: CoderControlPlane, report: Report) -> None:
        await self.writer.write(seen, report, OWNED)

    async def events(self) -> list[tuple[str, str]]:
        """All recorded events, repeats included."""
        await self.recorder.flush(within=5)
        events = [
            msgspec.json.decode(item) async for page in self.client.list(EVENT, self.namespace) for item in page.items
        ]
        return sorted(
            (event["reason"], event["note"]) for event in events for _ in range(event.get("series", {}).get("count", 1))
        )

    def requests(self) -> int:
        return total(self.metrics.requests)


@pytest.fixture
async def harness(cluster: ClusterAccess, crds: None, namespace: str) -> AsyncIterator[Harness]:
    metrics = Metrics()
    async with Http(load(cluster.kubeconfig), "tests", metrics) as http:
        client = Client(http, "tests")
        yield Harness(client, metrics, Recorder(client, "tests", "tests", metrics), namespace)


def reporting(**fields: Any) -> Report:
    report = StatusReport(ControlPlaneStatus())
    for name, value in fields.items():
        setattr(report.status, name, value)
    return report


def working(message: str = "0 of 1 pods are ready", **fields: Any) -> Report:
    report = reporting(**fields)
    report.add("Available", False, reasons.NO_REPLICAS_READY, message)
    return report


def up_to_date(**fields: Any) -> Report:
    report = reporting(**fields)
    report.add("Available", True, reasons.MINIMUM_REPLICAS_READY, "1 of 1 pods are ready")
    return report


def stuck(message: str = "pod demo-1: ErrImagePull") -> Report:
    report = Report()
    report.add("Available", False, reasons.ROLLOUT_STUCK, message, stalled=True)
    return report


async def test_first_write(harness: Harness) -> None:
    await harness.write(await harness.create(), working(phase="Pending", url="http://demo"))
    status = (await harness.manifest())["status"]
    assert (status["observedGeneration"], status["phase"], status["url"]) == (1, "Pending", "http://demo")
    conditions = {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}
    assert conditions == {
        "Ready": ("False", "NoReplicasReady"),
        "Reconciling": ("True", "NoReplicasReady"),
        "Stalled": ("False", "Progressing"),
        "Available": ("False", "NoReplicasReady"),
    }
    assert {entry["observedGeneration"] for entry in status["conditions"]} == {1}


async def test_concurrent_change_is_not_hidden_by_the_write(harness: Harness) -> None:
    seen = await harness.create()
    harness.cache.replace("", [seen], seen.metadata.resource_version)
    changes: list[Change[CoderControlPlane]] = []
    harness.cache.listen(changes.append)
    await harness.client.merge(CONTROL_PLANE, harness.key, {"spec": {"replicas": 3}})
    await harness.write(seen, working())
    other, own = changes
    assert (other.writer, other.new and other.new.spec.replicas) == ("", 3)
    assert (own.writer, own.new and own.new.spec.replicas) == ("tests", 3)


async def test_unchanged_status_sends_no_request(harness: Harness) -> None:
    await harness.write(await harness.create(), working())
    seen, before = await harness.get(), harness.requests()
    harness.now = LATE
    await harness.write(seen, working())
    assert harness.requests() == before


async def test_the_write_is_in_the_cache_at_once(harness: Harness) -> None:
    await harness.write(await harness.create(), working(phase="Pending"))
    known = harness.cache.get(harness.key)
    assert known is not None
    assert known == await harness.get()


async def test_transition_time_changes_only_with_the_status(harness: Harness) -> None:
    await harness.write(await harness.create(), working())
    harness.now = LATE
    await harness.write(await harness.get(), working("still 0 of 1 pods are ready"))
    same = condition(await harness.manifest(), "Available")
    assert (same["message"], same["lastTransitionTime"]) == ("Still 0 of 1 pods are ready", "2030-01-01T00:00:00Z")
    await harness.write(await harness.get(), up_to_date())
    assert condition(await harness.manifest(), "Available")["lastTransitionTime"] == "2030-01-02T00:00:00Z"


async def test_unreported_condition_is_removed_and_a_foreign_one_kept(harness: Harness) -> None:
    report = working()
    report.add("Exposed", True, reasons.APPLIED)
    await harness.write(await harness.create(), report)
    await harness.write(await harness.add_condition(FOREIGN), working())
    live = await harness.manifest()
    assert condition(live, "Exposed") == {}
    assert condition(live, "Audited") == FOREIGN


async def test_concurrent_edit_is_kept(harness: Harness) -> None:
    seen = await harness.create()
    await harness.label("meanwhile")
    await harness.write(seen, working(phase="Pending"))
    live = await harness.manifest()
    assert (live["status"]["phase"], live["metadata"]["labels"]) == ("Pending", {"edited": "meanwhile"})


async def test_concurrent_foreign_condition_is_kept(harness: Harness) -> None:
    seen = await harness.create()
    await harness.add_condition(FOREIGN)
    await harness.write(seen, working())
    live = await harness.manifest()
    assert condition(live, "Audited") == FOREIGN
    assert condition(live, "Available")["status"] == "False"


async def test_pause_keeps_concurrent_changes(harness: Harness) -> None:
    await harness.write(await harness.create(), up_to_date())
    seen = await harness.get()
    await harness.add_condition(FOREIGN)
    await harness.writer.pause(seen)
    live = await harness.manifest()
    assert [condition(live, name).get("reason") for name in ("Ready", "Available", "Audited")] == [
        "Paused",
        "MinimumReplicasReady",
        "Looked",
    ]


async def test_pause_and_resume_have_one_event_each(harness: Harness) -> None:
    await harness.write(await harness.create(), working())
    for _ in range(2):
        await harness.writer.pause(await harness.get())
    for _ in range(2):
        await harness.write(await harness.get(), working())
    assert await harness.events() == [
        ("Paused", "Reconciliation is paused by annotation coder.com/paused"),
        ("Resumed", "Reconciliation is resumed"),
    ]


async def test_pausing_a_new_object_is_logged(harness: Harness) -> None:
    """By its condition, although it is Unknown: the event of a pause is not logged itself."""
    with log_lines() as lines:
        await harness.writer.pause(await harness.create())
    assert [line["msg"].partition(":")[0] for line in lines] == ["Ready is Unknown", "Reconciling is False"]
    assert {line["reason"] for line in lines} == {"Paused"}


async def test_conditions_are_logged_once_per_cause(harness: Harness) -> None:
    """A new condition that is Unknown says nothing; one that becomes Unknown is a change."""
    unknown = (None, reasons.PENDING, "Waiting for a ready pod")
    known = (True, reasons.ALL_CHECKS_PASSED, "Coder reports no problem")
    await harness.create()
    with log_lines() as lines:
        for found in (unknown, known, unknown):
            report = working()
            report.add("Healthy", *found, satisfied=True)
            await harness.write(await harness.get(), report)
    assert [line["msg"] for line in lines] == [
        "Ready is False, Reconciling is True, Available is False: 0 of 1 pods are ready",
        "Healthy is True: Coder reports no problem",
        "Healthy is Unknown: Waiting for a ready pod",
    ]


async def test_status_of_a_newer_generation_is_kept(harness: Harness) -> None:
    stale = await harness.create()
    await harness.client.merge(CONTROL_PLANE, harness.key, {"spec": {"replicas": 2}})
    await harness.write(await harness.get(), working(phase="Pending"))
    before = await harness.manifest()
    await harness.write(stale, up_to_date(phase="Ready"))
    assert before["status"]["observedGeneration"] == 2
    assert await harness.manifest() == before
    assert await harness.events() == []


async def test_status_of_an_older_generation_is_written_with_its_number(harness: Harness) -> None:
    stale = await harness.create()
    await harness.client.merge(CONTROL_PLANE, harness.key, {"spec": {"replicas": 2}})
    await harness.write(stale, up_to_date())
    live = await harness.manifest()
    assert (live["metadata"]["generation"], live["status"]["observedGeneration"]) == (2, 1)
    assert {entry["observedGeneration"] for entry in live["status"]["conditions"]} == {1}


async def test_new_object_of_the_same_name_is_not_written(harness: Harness) -> None:
    seen = await harness.create()
    await harness.client.delete(CONTROL_PLANE, seen)
    await harness.create()
    await harness.write(seen, up_to_date())
    assert "status" not in await harness.manifest()
    assert await harness.events() == []


async def test_deleted_object_is_not_written(harness: Harness) -> None:
    seen = await harness.create()
    await harness.client.delete(CONTROL_PLANE, seen)
    await harness.write(seen, up_to_date())
    assert await harness.events() == []


async def test_one_event_per_change(harness: Harness) -> None:
    await harness.write(await harness.create(), working())
    assert await harness.events() == []
    for report in (stuck(), stuck(), stuck("pod demo-2: CrashLoopBackOff"), up_to_date(), up_to_date()):
        await harness.write(await harness.get(), report)
    assert await harness.events() == [
        ("Ready", "All components are ready"),
        ("RolloutStuck", "Pod demo-1: ErrImagePull"),
    ]


async def interrupted_reconcile(harness: Harness) -> None:
    """A reconcile that an error of the API server ends."""
    seen = await harness.get()
    error = errors.ServerError(500, "InternalError", "etcdserver: request timed out")
    await harness.writer.report_failure(seen, StatusReport(seen.status), error)


async def test_interrupted_reconcile_is_reported_without_an_earlier_conclusion(harness: Harness) -> None:
    await harness.create()
    await interrupted_reconcile(harness)
    live = await harness.manifest()
    assert live["status"]["phase"] == "Pending"
    conditions = [condition(live, name) for name in ("Ready", "Reconciling", "Stalled")]
    assert [entry["status"] for entry in conditions] == ["False", "True", "False"]
    assert (conditions[0]["reason"], conditions[0]["message"]) == (
        "Retrying",
        "The API server failed: etcdserver: request timed out",
    )
    assert await harness.events() == []


@pytest.mark.parametrize("make_report", [up_to_date, stuck])
async def test_interrupted_reconcile_keeps_the_conclusion_of_this_generation(
    harness: Harness, make_report: Callable[[], Report]
) -> None:
    await harness.write(await harness.create(), make_report())
    before, events = await harness.manifest(), await harness.events()
    await interrupted_reconcile(harness)
    assert await harness.manifest() == before
    await harness.write(await harness.get(), make_report())
    assert await harness.events() == events
    await harness.client.merge(CONTROL_PLANE, harness.key, {"spec": {"replicas": 2}})
    await interrupted_reconcile(harness)
    assert condition(await harness.manifest(), "Ready")["reason"] == "Retrying"


def test_rejection_without_a_field_has_the_message_of_the_server() -> None:
    denial = errors.Invalid(422, "Invalid", 'admission webhook "quota.example.com" denied the request')
    assert str(StatusRejected(denial)).endswith('object: admission webhook "quota.example.com" denied the request')


def test_a_draft_records_assignments_and_does_not_change_the_status() -> None:
    before = ControlPlaneStatus(url="http://old", image="coder:v1")
    report = StatusReport(before)
    report.status.url = "http://new"
    report.status.image = "coder:v1"
    assert (report.status.url, report.status.image, report.status.version) == ("http://new", "coder:v1", "")
    assert report.fields == {"url": "http://new", "image": "coder:v1"}
    assert before.url == "http://old"
    with pytest.raises(AttributeError):
        report.status.ulr = "http://new"  # type: ignore[attr-defined]


async def test_a_field_that_was_not_assigned_keeps_its_live_value(harness: Harness) -> None:
    seen = await harness.create()
    await harness.client.merge(CONTROL_PLANE, harness.key, {"status": {"version": "v2.36.1"}}, "status")
    await harness.write(seen, working(url="http://demo"))
    status = (await harness.manifest())["status"]
    assert (status["url"], status["version"]) == ("http://demo", "v2.36.1")
