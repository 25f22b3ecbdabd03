"""Daemons as coderd reports them: the condition, and which pod is restarted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from coder_k8s.api import PROVISIONER, CoderProvisioner
from coder_k8s.api.provisioner import Daemons
from coder_k8s.coderd.types import DaemonJob, ProvisionerDaemon
from coder_k8s.controllers.provisioner import daemons
from coder_k8s.controllers.report import Report
from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Manifest, Unstructured, timestamp
from tests.support import eventually
from tests.support.kstatus import kstatus
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = DaemonJob("job", "running")


def daemon(name: str, status: str = "idle", *, unseen: float = 0, **fields: Any) -> ProvisionerDaemon:
    seen = NOW - timedelta(minutes=unseen)
    fields = {"key_name": "build", "key_id": "id-build", "version": "v2.36.1", **fields}
    return ProvisionerDaemon(
        id=name,
        name=name,
        created_at=NOW,
        api_version="",
        tags={},
        status=status,
        last_seen_at=seen,
        **fields,
    )


def pod(name: str, *, ready: float | None = 10, deleting: bool = False) -> Unstructured:
    """A pod that has been ready for this many minutes."""
    since = timestamp(NOW - timedelta(minutes=ready or 0))
    condition = {"type": "Ready", "status": "False" if ready is None else "True", "lastTransitionTime": since}
    metadata: Manifest = {"name": name, "namespace": "test"}
    if deleting:
        metadata["deletionTimestamp"] = timestamp(NOW)
    return Unstructured.decode(msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}}))


def provisioner(**spec: Any) -> CoderProvisioner:
    content = {
        "metadata": {"name": "build", "namespace": "test"},
        "spec": {"controlPlaneRef": {"name": "demo"}, **spec},
        "status": {
            "provisionerKeyName": "build-0a1b",
            "provisionerKeyID": "id-0a1b",
            "retiringKeys": [{"name": "build", "id": "id-build"}, {"name": "build-2"}],
        },
    }
    return msgspec.convert(content, CoderProvisioner)


LOST: list[tuple[str, list[Unstructured], list[ProvisionerDaemon], str | None]] = [
    ("all is well", [pod("a"), pod("b")], [daemon("a"), daemon("b", "busy")], None),
    ("offline", [pod("a"), pod("b")], [daemon("a"), daemon("b", "offline", unseen=3)], "b"),
    ("never seen", [pod("a"), pod("b")], [daemon("a")], "b"),
    ("seen a while ago", [pod("a")], [daemon("a", "offline", unseen=2.9)], None),
    ("not ready for long", [pod("a", ready=2.9)], [], None),
    ("not ready", [pod("a", ready=None)], [], None),
    ("at work", [pod("a")], [daemon("a", "offline", unseen=5, current_job=JOB)], None),
    ("busy", [pod("a"), pod("b")], [daemon("a", "busy", unseen=5)], "b"),
    ("one at a time", [pod("b"), pod("a")], [], "a"),
    ("one is on its way out", [pod("a"), pod("b", deleting=True)], [], None),
    ("as many as pods, by whatever name", [pod("a")], [daemon("host")], None),
    ("a name of no pod", [pod("a.b-1"), pod("a.b-2")], [daemon("a")], None),
    ("a name of no pod, seen lately", [pod("a"), pod("b")], [daemon("a"), daemon("x", "offline", unseen=2)], None),
    ("a name of no pod, long gone", [pod("a"), pod("b")], [daemon("a"), daemon("x", "offline", unseen=3)], "b"),
    ("no pods", [], [daemon("a", "offline", unseen=5)], None),
]


@pytest.mark.parametrize("row", LOST, ids=lambda row: row[0])
def test_find_disconnected(row: tuple[str, list[Unstructured], list[ProvisionerDaemon], str | None]) -> None:
    _, pods, seen, expected = row
    found = daemons.find_disconnected(pods, seen, NOW)
    assert (found.metadata.name if found else None) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"extraArgs": ["--verbose", "--named"]}, True),
        ({"extraArgs": ["--name", "mine"]}, False),
        ({"extraArgs": ["--name=mine"]}, False),
        ({"extraEnv": [{"name": "CODER_PROVISIONER_DAEMON_NAME", "value": "mine"}]}, False),
    ],
)
def test_named_after_pods(spec: dict[str, Any], expected: bool) -> None:
    assert daemons.are_named_after_pods(provisioner(**spec)) is expected


def test_summary() -> None:
    seen = [
        daemon("a"),
        daemon("b", "busy", version="v2.30.0"),
        daemon("c", "offline", version="v1"),
        daemon("d", key_name="build-0a1b", key_id="id-0a1b"),
        daemon("e", key_name="other", key_id="id-other"),
        daemon("f", key_name="built-in", key_id="id-built-in"),
        daemon("g", key_name="build-2", key_id="id-2"),
        daemon("h", key_name="build", key_id="id-of-a-namesake"),
    ]
    found = daemons.summary(daemons.of_provisioner(provisioner(), seen))
    assert found == Daemons(connected=4, busy=1, offline=1, versions=["v2.30.0", "v2.36.1"])


def test_the_number_of_versions_in_the_status_is_limited() -> None:
    found = daemons.summary(daemon("a", version=f"v{number:03}") for number in range(500))
    assert found.versions == [f"v{number:03}" for number in range(16)]


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, True),
        ({"organizationID": ""}, True),
        ({"tagsHash": "811c9dc5"}, False),
        ({"controlPlaneRefName": "other"}, False),
        ({"organizationID": "org-2"}, False),
    ],
)
def test_daemons_with_the_name_of_a_key(changes: dict[str, str], counted: bool) -> None:
    """Only if an earlier version replaced that key."""
    here = {"controlPlaneRefName": "demo", "organizationID": "org-1"}
    status = {**here, "retiringKeys": [{"name": "build", **here, **changes}]}
    known = provisioner()
    known.status = msgspec.convert(status, type(known.status))
    assert bool(daemons.of_provisioner(known, [daemon("a")])) is counted


LOGS = "; if this persists, see the logs of Deployment provisioner-build"


@pytest.mark.parametrize(
    ("replicas", "connected", "expected", "satisfied"),
    [
        (2, 2, (True, "DaemonsConnected", "2 of 2 daemons are connected"), True),
        (2, 3, (True, "DaemonsConnected", "2 of 2 daemons are connected"), True),
        (2, 1, (True, "DaemonsConnecting", f"1 of 2 daemons are connected{LOGS}"), False),
        (2, 0, (False, "DaemonsNotConnected", f"0 of 2 daemons are connected{LOGS}"), False),
        (0, 0, (False, "ScaledToZero", "Scaled to zero"), True),
        (0, 1, (False, "ScaledToZero", "Scaled to zero"), True),
    ],
)
def test_report_daemons(replicas: int, connected: int, expected: tuple[bool, str, str], satisfied: bool) -> None:
    report = Report()
    daemons.report_daemons(provisioner(), Daemons(connected=connected), replicas, report)
    [finding] = report.findings
    assert finding[1:] == expected
    assert report.conclude()[0].status is satisfied
    assert (report.requeue is None) is satisfied


async def put_pod(place: ProvisionerNamespace, operator: Operator, name: str, ready_since: datetime) -> None:
    """A pod of the provisioner that has been ready since then."""
    if await place.find(SERVICE_ACCOUNT, "default") is None:
        await place.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": place.namespace, "name": "default"}})
    template = (await place.deployment()).manifest["spec"]["template"]["metadata"]
    metadata = {"namespace": place.namespace, "name": name, **template}
    spec = {"containers": [{"name": "provisioner", "image": "coder"}], "automountServiceAccountToken": False}
    await place.client.create(POD, {"metadata": metadata, "spec": spec})
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(ready_since)}
    await place.client.merge(POD, place.key_of(name), {"status": {"conditions": [condition]}}, "status")
    cache = operator.informers[POD]
    await eventually(lambda: (live := cache.get(place.key_of(name))) and "conditions" in live.manifest["status"])


async def test_disconnected_daemon_is_restarted(place: ProvisionerNamespace) -> None:
    """One at a time, and never a connected one."""
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await place.make(replicas=3)
        await place.ready(operator, ready=3)
        for name in ("build-0", "build-1", "build-2"):
            await put_pod(place, operator, name, place.clock())
        ids = {daemon.name: daemon.id for daemon in state.daemons.values()}
        state.set_daemon(ids["build-0"], "busy")
        state.set_daemon(ids["build-1"], "offline")
        state.disconnect_daemon(ids["build-2"])
        place.clock.advance(minutes=2, seconds=50)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        await place.condition("DaemonsConnected", "DaemonsConnecting", "True")
        assert not await place.events("DaemonRestarted")
        place.clock.advance(seconds=10)
        await operator.reconcile(place.key)
        [event] = await eventually(lambda: place.events("DaemonRestarted"))
        assert "build-1" in event["note"]
        assert await place.find(POD, "build-1") is None
        assert await place.find(POD, "build-2") is not None
        await eventually(lambda: operator.informers[POD].get(place.key_of("build-1")) is None)
        await operator.reconcile(place.key)
        assert await place.find(POD, "build-2") is None
        await operator.reconcile(place.key)
        assert await place.find(POD, "build-0") is not None


async def test_metrics(place: ProvisionerNamespace) -> None:
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await place.make(replicas=3)
        await place.ready(operator, ready=3)
        busy, offline, _ = [daemon.id for daemon in state.daemons.values()]
        state.set_daemon(busy, "busy")
        state.set_daemon(offline, "offline")
        place.clock.advance(minutes=2)
        await operator.reconcile(place.key)
        metrics = operator.metrics()
        reported = (await place.get()).status
    of = f'name="build",namespace="{place.namespace}"'
    for status, number in (("idle", 1), ("busy", 1), ("offline", 1)):
        assert f'coder_k8s_provisioner_daemons{{{of},state="{status}"}} {number}.0' in metrics
    created = place.keys["build"].created_at.timestamp()
    [age] = [
        line for line in metrics.splitlines() if line.startswith("coder_k8s_provisioner_key_created_timestamp_seconds{")
    ]
    assert float(age.rpartition(" ")[2]) == created
    assert reported.daemons == Daemons(connected=2, busy=1, offline=1, versions=["v2.36.1"])


async def test_new_daemons_are_detected_soon(place: ProvisionerNamespace) -> None:
    """The operator polls every 10 s only while daemons are missing."""
    async with place.operator() as operator:
        await place.make()
        await place.condition("DaemonsConnected", "DaemonsNotConnected", "False")
        await operator.wait_idle()
        assert 0 < (operator.requeue_after() or 0) <= 10
        await place.ready(operator)
        await operator.reconcile(place.key)
        assert (operator.requeue_after() or 0) > 100


async def test_scaled_to_zero_is_ready(place: ProvisionerNamespace) -> None:
    async with place.operator():
        await place.make(replicas=0)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await eventually(place.deployment)
        await place.roll_out_daemons(ready=0)
        await place.condition("Ready", "ScaledToZero", "True")
        assert (await place.conditions())["DaemonsConnected"] == ("False", "ScaledToZero")
        assert (await place.conditions())["DeploymentReady"] == ("False", "NoReplicasReady")
        assert (await place.get()).status.phase == "Pending"
        assert kstatus(await place.client.get_manifest(PROVISIONER, place.key)) == "Current"
