"""Exposure by an Ingress, an HTTPRoute, or none."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.exposure import answers, judge
from coder_k8s.controllers.report import Report
from coder_k8s.dev import gateway_api
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.conditions import Condition, Status, find
from coder_k8s.kube.kinds import HTTP_ROUTE, INGRESS
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.support import eventually
from tests.support.clock import Clock
from tests.support.gateways import set_accepted
from tests.support.operators import Operator

from .administrator import (
    Administrator,
    administrator,
    ensure_gateway_api,
    operator_of,
    serves_routes,
)

BY_INGRESS = {"ingress": {"host": "coder.example.com"}}
BY_GATEWAY = {"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}}


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Administrator]:
    async with administrator(cluster.kubeconfig) as admin:
        yield admin


@pytest.fixture
async def gateway_admin(gateway_cluster: Cluster) -> AsyncIterator[Administrator]:
    async with administrator(gateway_cluster.kubeconfig) as admin:
        yield admin


async def add_gateway_api(cluster: ClusterAccess) -> None:
    await asyncio.to_thread(ensure_gateway_api, cluster)


async def remove_gateway_api(cluster: ClusterAccess) -> None:
    if serves_routes(cluster):
        command = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
        await asyncio.to_thread(cluster.kubectl, *command, input=gateway_api.manifests())
        await eventually(lambda: not serves_routes(cluster), 30)


PUBLIC, INTERNAL = {"name": "public"}, {"name": "internal", "namespace": "gateways", "sectionName": "https"}


def accepted(parent: dict[str, str], status: str, generation: int = 2) -> dict[str, Any]:
    accepted = {"type": "Accepted", "status": status, "reason": "Said", "observedGeneration": generation}
    return {"parentRef": parent, "conditions": [{"type": "ResolvedRefs", "status": "True"}, accepted]}


WAITS, ACCEPTED = "Waiting for Gateway", "HTTPRoute demo serves coder.example.com by Gateway public, internal"
UNPROCESSED = "Gateway public does not process HTTPRoute demo"


@pytest.mark.parametrize(
    ("parents", "expected", "message"),
    [
        ([], "None WaitingForGateway", f"{WAITS} public"),
        ([accepted(PUBLIC, "True")], "None WaitingForGateway", f"{WAITS} internal"),
        ([accepted(PUBLIC, "True"), accepted(PUBLIC, "True")], "None WaitingForGateway", f"{WAITS} internal"),
        ([accepted(PUBLIC, "True"), accepted(INTERNAL, "Unknown")], "None WaitingForGateway", f"{WAITS} internal"),
        ([accepted({**PUBLIC, "namespace": "here"}, "True"), accepted(INTERNAL, "True")], "True Applied", ACCEPTED),
        (
            [accepted(PUBLIC, "True"), accepted(INTERNAL, "False")],
            "False NotAccepted",
            "Gateway internal does not accept",
        ),
        ([accepted(PUBLIC, "False"), accepted(PUBLIC, "True")], "False NotAccepted", "Gateway public does not accept"),
        ([accepted(INTERNAL, "False", generation=1)], "None WaitingForGateway", f"{WAITS} public"),
        (
            [accepted({"name": "retired"}, "False"), accepted(PUBLIC, "True")],
            "None WaitingForGateway",
            f"{WAITS} internal",
        ),
        ([{"parentRef": PUBLIC}], "None WaitingForGateway", f"{WAITS} public"),
    ],
)
def test_route_outcome(parents: list[dict[str, Any]], expected: str, message: str) -> None:
    report = judged(parents)
    [found] = report.findings
    assert f"{found.status} {found.reason}" == expected
    assert found.message.startswith(message)
    assert report.requeue == (60 if found.status is None else None)


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def judged(
    parents: list[dict[str, Any]], before: Sequence[Condition] = (), *, changed: bool = False, **metadata: Any
) -> Report:
    content = {
        "metadata": {"name": "demo", "namespace": "here", "generation": 2, **metadata},
        "spec": {"parentRefs": [PUBLIC, INTERNAL], "hostnames": ["coder.example.com"]},
        "status": {"parents": parents},
    }
    route, report = Unstructured.decode(msgspec.json.encode(content)), Report(before)
    judge(route, answers(route), report, NOW, changed=changed)
    return report


@pytest.mark.parametrize(
    ("status", "reason", "seconds", "expected"),
    [
        ("True", "Applied", 3600, "None WaitingForGateway"),
        ("False", "GatewayAPIMissing", 3600, "None WaitingForGateway"),
        ("Unknown", "WaitingForGateway", 59, "None WaitingForGateway"),
        ("Unknown", "WaitingForGateway", 60, "False NotAccepted"),
        ("False", "NotAccepted", 5, "False NotAccepted"),
    ],
)
def test_gateway_that_does_not_respond(status: Status, reason: str, seconds: int, expected: str) -> None:
    since = NOW - timedelta(seconds=seconds)
    before = Condition(type="Exposed", status=status, reason=reason, message="", last_transition_time=since)
    report = judged([], [before])
    [found] = report.findings
    assert f"{found.status} {found.reason}" == expected
    if found.status is None:
        assert report.requeue == (60 - seconds if status == "Unknown" else 60)
    else:
        assert found.message.startswith(UNPROCESSED)
        assert report.requeue is None


@pytest.mark.parametrize(("status", "reason"), [("Unknown", "WaitingForGateway"), ("False", "NotAccepted")])
def test_route_that_changed_has_another_minute(status: Status, reason: str) -> None:
    since = NOW - timedelta(seconds=3600)
    before = Condition(type="Exposed", status=status, reason=reason, message="", last_transition_time=since)
    report = judged([], [before], changed=True)
    [found] = report.findings
    assert (found.status, found.reason, report.requeue) == (None, "WaitingForGateway", 60)


def test_route_that_is_being_deleted_is_not_accepted() -> None:
    parents = [accepted(PUBLIC, "True"), accepted(INTERNAL, "True")]
    [found] = judged(parents, deletionTimestamp="2026-03-01T11:59:00Z").findings
    assert (found.status, found.reason) == (None, "WaitingForGateway")


async def test_ingress_follows_the_spec(admin: Administrator, operator_kubeconfig: Path, namespace: str) -> None:
    async with Operator(operator_kubeconfig, [namespace], wiring.build):
        tls = {"secretName": "coder-tls", "wildcardSecretName": "apps-tls"}
        host = {"host": "coder.example.com", "wildcardHost": "*.coder.example.com"}
        key = await admin.make(namespace, expose={"ingress": {**host, "className": "nginx", "tls": tls}})
        assert (await admin.condition(key, "Exposed", "Applied")).status == "True"
        made = (await admin.client.get(INGRESS, key)).manifest
        assert made["spec"]["ingressClassName"] == "nginx"
        assert [rule["host"] for rule in made["spec"]["rules"]] == ["coder.example.com", "*.coder.example.com"]
        assert [entry["secretName"] for entry in made["spec"]["tls"]] == ["coder-tls", "apps-tls"]
        assert made["metadata"]["ownerReferences"][0]["uid"] == (await admin.plane(key)).metadata.uid

        await admin.change(key, expose={"ingress": {"host": "new.example.com", "wildcardHost": None, "tls": None}})

        async def changed() -> bool:
            spec = (await admin.client.get(INGRESS, key)).manifest["spec"]
            return [rule["host"] for rule in spec["rules"]] == ["new.example.com"] and "tls" not in spec

        await eventually(changed)

        await admin.change(key, expose=None)
        await admin.gone(INGRESS, key)
        await eventually(lambda: is_unreported(admin, key))


async def is_unreported(admin: Administrator, key: Key) -> bool:
    """Whether the condition `Exposed` is removed."""
    return find((await admin.plane(key)).status.conditions, "Exposed") is None


async def test_ingress_of_another_owner_is_not_changed(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    key = Key(namespace, "demo")
    backend = {"service": {"name": "theirs", "port": {"number": 80}}}
    foreign = {"metadata": {"namespace": namespace, "name": "demo"}, "spec": {"defaultBackend": backend}}
    before = await admin.client.create(INGRESS, foreign)
    async with Operator(operator_kubeconfig, [namespace], wiring.build):
        await admin.make(namespace, expose=BY_INGRESS)
        stalled = await admin.condition(key, "Stalled", "NameTaken")
        assert "Ingress demo exists and has no owner" in stalled.message
        assert (await admin.condition(key, "Exposed", "NameTaken")).status == "False"

        await admin.change(key, expose=None)
        await admin.not_stalled(key)
        assert await admin.find(INGRESS, key) == before

        await admin.delete(INGRESS, key)
        await admin.change(key, expose=BY_INGRESS)
        assert (await admin.condition(key, "Exposed", "Applied")).status == "True"


@pytest.mark.slow
async def test_gateway_api_is_noticed_without_a_restart(gateway_cluster: Cluster, gateway_admin: Administrator) -> None:
    await remove_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with Operator(operator_of(gateway_cluster), [namespace], wiring.build):
        key = await gateway_admin.make(namespace, expose=BY_GATEWAY)
        missing = await gateway_admin.condition(key, "Exposed", "GatewayAPIMissing")
        assert missing.status == "False"
        assert missing.message == "The cluster has no Gateway API; install its CRDs, or use expose.ingress"
        await eventually(lambda: has_event(gateway_admin, key, "GatewayAPIMissing", missing.message))

        await add_gateway_api(gateway_cluster)
        await gateway_admin.condition(key, "Exposed", "WaitingForGateway", within=20)
        made = (await gateway_admin.client.get(HTTP_ROUTE, key)).manifest
        assert made["metadata"]["ownerReferences"][0]["name"] == "demo"

        await remove_gateway_api(gateway_cluster)
        await gateway_admin.condition(key, "Exposed", "GatewayAPIMissing", within=20)


async def test_route_follows_the_conditions_of_its_parents(
    gateway_cluster: Cluster, gateway_admin: Administrator
) -> None:
    await add_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    clock = Clock()
    async with Operator(operator_of(gateway_cluster), [namespace], wiring.build, now=clock) as operator:
        key = await gateway_admin.make(namespace, expose=BY_GATEWAY)
        assert (await gateway_admin.condition(key, "Exposed", "WaitingForGateway")).status == "Unknown"
        await operator.wait_idle()
        clock.advance(seconds=61)
        await gateway_admin.change(key, extraArgs=["--verbose"])  # another reconcile, like after a minute
        condition = await gateway_admin.condition(key, "Exposed", "NotAccepted")
        message = "Gateway public does not process HTTPRoute demo; check that it exists and has a controller"
        assert (condition.status, condition.message) == ("False", message)
        await eventually(lambda: has_event(gateway_admin, key, "NotAccepted", message))
        assert (await gateway_admin.plane(key)).status.phase == "Pending"

        corrected = {**BY_GATEWAY["gateway"], "parentRefs": [{"name": "corrected"}]}
        await gateway_admin.change(key, expose={"gateway": corrected})
        assert "corrected" in (await gateway_admin.condition(key, "Exposed", "WaitingForGateway")).message
        await gateway_admin.change(key, expose=BY_GATEWAY)
        await gateway_admin.condition(key, "Exposed", "WaitingForGateway")

        await set_accepted(gateway_admin.client, key, "False", "NotAllowedByListeners", "no listener takes this host")
        refused = await gateway_admin.condition(key, "Exposed", "NotAccepted")
        await eventually(lambda: has_message(gateway_admin, key, "no listener takes this host"))
        assert refused.status == "False"

        await set_accepted(gateway_admin.client, key, "True", "Accepted")
        accepted = await gateway_admin.condition(key, "Exposed", "Applied")
        assert accepted.message == "HTTPRoute demo serves coder.example.com by Gateway public"


async def has_event(admin: Administrator, key: Key, reason: str, note: str) -> bool:
    """Whether there is exactly one such event, without repeats."""
    found = [event for event in await admin.events(key) if event["reason"] == reason]
    return [(event["type"], event["note"], "series" in event) for event in found] == [("Warning", note, False)]


async def has_message(admin: Administrator, key: Key, text: str) -> bool:
    """Whether the message of `Exposed` contains a text."""
    found = find((await admin.plane(key)).status.conditions, "Exposed")
    return found is not None and text in found.message


async def test_old_exposure_stays_until_the_new_one_is_accepted(
    gateway_cluster: Cluster, gateway_admin: Administrator
) -> None:
    await add_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with Operator(operator_of(gateway_cluster), [namespace], wiring.build) as operator:
        key = await gateway_admin.make(namespace, expose=BY_INGRESS)
        condition = await gateway_admin.condition(key, "Exposed", "Applied")
        assert condition.message == "Ingress demo serves coder.example.com"
        before = await gateway_admin.client.get(INGRESS, key)

        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})
        await gateway_admin.condition(key, "Exposed", "WaitingForGateway")
        await operator.wait_idle()
        assert await gateway_admin.find(INGRESS, key) == before
        await set_accepted(gateway_admin.client, key, "False", "NotAllowedByListeners")
        await gateway_admin.condition(key, "Exposed", "NotAccepted")
        await operator.wait_idle()
        assert await gateway_admin.find(INGRESS, key) == before
        await set_accepted(gateway_admin.client, key, "True", "Accepted")
        await gateway_admin.gone(INGRESS, key)
        assert await gateway_admin.find(HTTP_ROUTE, key)

        await gateway_admin.change(key, expose={**BY_INGRESS, "gateway": None})
        await gateway_admin.gone(HTTP_ROUTE, key)
        assert await gateway_admin.find(INGRESS, key)

        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})
        await gateway_admin.condition(key, "Exposed", "WaitingForGateway")
        await gateway_admin.change(key, expose=None)
        await gateway_admin.gone(HTTP_ROUTE, key)
        await gateway_admin.gone(INGRESS, key)


async def test_ingress_stays_without_gateway_api(gateway_cluster: Cluster, gateway_admin: Administrator) -> None:
    await remove_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with Operator(operator_of(gateway_cluster), [namespace], wiring.build) as operator:
        key = await gateway_admin.make(namespace, expose=BY_INGRESS)
        await gateway_admin.condition(key, "Exposed", "Applied")
        before = await gateway_admin.client.get(INGRESS, key)
        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})
        assert (await gateway_admin.condition(key, "Exposed", "GatewayAPIMissing")).status == "False"
        await operator.wait_idle()
        assert await gateway_admin.find(INGRESS, key) == before


async def test_switch_to_a_route_of_another_owner_keeps_the_ingress(
    gateway_cluster: Cluster, gateway_admin: Administrator
) -> None:
    await add_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    key = Key(namespace, "demo")
    foreign: Manifest = {
        "metadata": {"namespace": namespace, "name": "demo"},
        "spec": {"parentRefs": [{"name": "theirs"}]},
    }
    before = await gateway_admin.client.create(HTTP_ROUTE, foreign)
    async with Operator(operator_of(gateway_cluster), [namespace], wiring.build):
        await gateway_admin.make(namespace, expose=BY_INGRESS)
        await gateway_admin.condition(key, "Exposed", "Applied")
        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})

        assert (
            "HTTPRoute demo exists and has no owner"
            in (await gateway_admin.condition(key, "Stalled", "NameTaken")).message
        )
        assert await gateway_admin.find(INGRESS, key), "the Ingress stays until the route is accepted"
        assert await gateway_admin.find(HTTP_ROUTE, key) == before

        await gateway_admin.delete(CONTROL_PLANE, key)
        await gateway_admin.gone(CONTROL_PLANE, key)
        assert await gateway_admin.find(HTTP_ROUTE, key) == before
