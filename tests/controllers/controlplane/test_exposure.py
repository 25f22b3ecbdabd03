"""The way in: an Ingress, an HTTPRoute, or none."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import setup
from coder_k8s.controllers.controlplane.exposure import judge
from coder_k8s.controllers.report import Report
from coder_k8s.dev import gateway_api
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import HTTP_ROUTE, INGRESS
from coder_k8s.kube.objects import Child, Key, Manifest, timestamp
from tests.support import eventually
from tests.support.controllers import running

from .administrator import (
    Administrator,
    administrator,
    install_gateway_api,
    operator_of,
    own_cluster,
    serves_routes,
)

BY_INGRESS = {"ingress": {"host": "coder.example.com"}}
BY_GATEWAY = {"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}}


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Administrator]:
    async with administrator(cluster.kubeconfig) as somebody:
        yield somebody


@pytest.fixture(scope="module")
def gateway_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster where the Gateway API comes and goes."""
    with own_cluster(audit) as cluster:
        yield cluster


@pytest.fixture
async def gateway_admin(gateway_cluster: Cluster) -> AsyncIterator[Administrator]:
    async with administrator(gateway_cluster.kubeconfig) as somebody:
        yield somebody


async def have_gateway_api(cluster: ClusterAccess) -> None:
    if not serves_routes(cluster):
        await asyncio.to_thread(install_gateway_api, cluster)


async def lose_gateway_api(cluster: ClusterAccess) -> None:
    if serves_routes(cluster):
        command = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
        await asyncio.to_thread(cluster.kubectl, *command, input=gateway_api.manifests())
        await eventually(lambda: not serves_routes(cluster), 30)


PUBLIC, INTERNAL = {"name": "public"}, {"name": "internal", "namespace": "gateways", "sectionName": "https"}


def said(parent: dict[str, str], status: str, generation: int = 2) -> dict[str, Any]:
    accepted = {"type": "Accepted", "status": status, "reason": "Said", "observedGeneration": generation}
    return {"parentRef": parent, "conditions": [{"type": "ResolvedRefs", "status": "True"}, accepted]}


@pytest.mark.parametrize(
    ("parents", "reason", "message"),
    [
        ([], "Applied", "0 of 2 Gateways have answered"),
        ([said(PUBLIC, "True")], "Applied", "1 of 2 Gateways have answered"),
        ([said(PUBLIC, "True"), said(PUBLIC, "True")], "Applied", "1 of 2 Gateways have answered"),
        ([said(PUBLIC, "True"), said(INTERNAL, "Unknown")], "Applied", "1 of 2 Gateways have answered"),
        ([said({**PUBLIC, "namespace": "here"}, "True"), said(INTERNAL, "True")], "Applied", "accepted"),
        ([said(PUBLIC, "True"), said(INTERNAL, "False")], "NotAccepted", "Gateway internal does not accept"),
        ([said(INTERNAL, "False", generation=1)], "Applied", "0 of 2 Gateways have answered"),
        ([said({"name": "retired"}, "False"), said(PUBLIC, "True")], "Applied", "1 of 2 Gateways have answered"),
        ([{"parentRef": PUBLIC}], "Applied", "0 of 2 Gateways have answered"),
    ],
)
def test_judgement_of_a_route(parents: list[dict[str, Any]], reason: str, message: str) -> None:
    content = {"spec": {"parentRefs": [PUBLIC, INTERNAL]}, "status": {"parents": parents}}
    metadata = {"name": "demo", "namespace": "here", "generation": 2}
    report = Report()
    judge(Child.decode(msgspec.json.encode({"metadata": metadata, **content})), report)
    [found] = report.findings
    assert (found.reason, found.holds) == (reason, reason == "Applied")
    assert found.message.startswith(message)


async def answer(admin: Administrator, key: Key, status: str, reason: str, message: str = "") -> None:
    """Say about a route what a gateway controller would."""
    route = await admin.client.get(HTTP_ROUTE, key)
    accepted = {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": route.metadata.generation,
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    parent = {
        "parentRef": route.manifest["spec"]["parentRefs"][0],
        "controllerName": "example.com/gateway",
        "conditions": [accepted],
    }
    await admin.client.merge(HTTP_ROUTE, route.key, {"status": {"parents": [parent]}}, "status")


async def test_ingress_follows_the_spec_and_goes_with_it(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with running(operator_kubeconfig, [namespace], setup.build):
        tls = {"secretName": "coder-tls", "wildcardSecretName": "apps-tls"}
        host = {"host": "coder.example.com", "wildcardHost": "*.coder.example.com"}
        key = await admin.make(namespace, expose={"ingress": {**host, "className": "nginx", "tls": tls}})
        assert (await admin.told(key, "Exposed", "Applied")).status == "True"
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
        await eventually(lambda: silent(admin, key))


async def silent(admin: Administrator, key: Key) -> bool:
    """Whether nothing is said about exposure any more."""
    return find((await admin.plane(key)).status.conditions, "Exposed") is None


async def test_foreign_ingress_of_the_same_name_is_left_alone(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    key = Key(namespace, "demo")
    backend = {"service": {"name": "theirs", "port": {"number": 80}}}
    foreign = {"metadata": {"namespace": namespace, "name": "demo"}, "spec": {"defaultBackend": backend}}
    before = await admin.client.create(INGRESS, foreign)
    async with running(operator_kubeconfig, [namespace], setup.build):
        await admin.make(namespace, expose=BY_INGRESS)
        stalled = await admin.told(key, "Stalled", "NameTaken")
        assert f"Ingress {key}" in stalled.message
        assert (await admin.told(key, "Exposed", "NameTaken")).status == "False"

        await admin.change(key, expose=None)
        await admin.not_stalled(key)
        assert await admin.find(INGRESS, key) == before

        await admin.delete(INGRESS, key)
        await admin.change(key, expose=BY_INGRESS)
        assert (await admin.told(key, "Exposed", "Applied")).status == "True"


async def test_gateway_api_is_picked_up_and_missed_without_a_restart(
    gateway_cluster: Cluster, gateway_admin: Administrator
) -> None:
    await lose_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with running(operator_of(gateway_cluster), [namespace], setup.build):
        key = await gateway_admin.make(namespace, expose=BY_GATEWAY)
        missing = await gateway_admin.told(key, "Exposed", "GatewayAPIMissing")
        assert missing.status == "False"
        assert "Gateway API" in missing.message

        await have_gateway_api(gateway_cluster)
        await gateway_admin.told(key, "Exposed", "Applied", within=20)
        made = (await gateway_admin.client.get(HTTP_ROUTE, key)).manifest
        assert made["metadata"]["ownerReferences"][0]["name"] == "demo"

        await lose_gateway_api(gateway_cluster)
        await gateway_admin.told(key, "Exposed", "GatewayAPIMissing", within=20)


async def test_route_is_as_good_as_its_parents_say(gateway_cluster: Cluster, gateway_admin: Administrator) -> None:
    await have_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with running(operator_of(gateway_cluster), [namespace], setup.build):
        key = await gateway_admin.make(namespace, expose=BY_GATEWAY)
        assert (await gateway_admin.told(key, "Exposed", "Applied")).message == "0 of 1 Gateways have answered"

        await answer(gateway_admin, key, "False", "NotAllowedByListeners", "no listener takes this host")
        refused = await gateway_admin.told(key, "Exposed", "NotAccepted")
        assert refused.status == "False"
        assert "public" in refused.message
        assert "no listener takes this host" in refused.message

        await answer(gateway_admin, key, "True", "Accepted")
        assert (await gateway_admin.told(key, "Exposed", "Applied")).message == "accepted"


async def test_switching_keeps_one_way_in(gateway_cluster: Cluster, gateway_admin: Administrator) -> None:
    await have_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    async with running(operator_of(gateway_cluster), [namespace], setup.build):
        key = await gateway_admin.make(namespace, expose=BY_INGRESS)
        await gateway_admin.told(key, "Exposed", "Applied")
        assert await gateway_admin.find(INGRESS, key)

        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})
        await gateway_admin.gone(INGRESS, key)
        assert await gateway_admin.find(HTTP_ROUTE, key)

        await gateway_admin.change(key, expose={**BY_INGRESS, "gateway": None})
        await gateway_admin.gone(HTTP_ROUTE, key)
        assert await gateway_admin.find(INGRESS, key)

        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})
        await gateway_admin.gone(INGRESS, key)
        await gateway_admin.change(key, expose=None)
        await gateway_admin.gone(HTTP_ROUTE, key)


async def test_switching_leaves_a_foreign_route_alone_and_the_ingress_in_place(
    gateway_cluster: Cluster, gateway_admin: Administrator
) -> None:
    await have_gateway_api(gateway_cluster)
    namespace = await gateway_admin.make_namespace()
    key = Key(namespace, "demo")
    foreign: Manifest = {
        "metadata": {"namespace": namespace, "name": "demo"},
        "spec": {"parentRefs": [{"name": "theirs"}]},
    }
    before = await gateway_admin.client.create(HTTP_ROUTE, foreign)
    async with running(operator_of(gateway_cluster), [namespace], setup.build):
        await gateway_admin.make(namespace, expose=BY_INGRESS)
        await gateway_admin.told(key, "Exposed", "Applied")
        await gateway_admin.change(key, expose={**BY_GATEWAY, "ingress": None})

        assert f"HTTPRoute {key}" in (await gateway_admin.told(key, "Stalled", "NameTaken")).message
        assert await gateway_admin.find(INGRESS, key), "the old way in stays until there is a new one"
        assert await gateway_admin.find(HTTP_ROUTE, key) == before

        await gateway_admin.delete(CONTROL_PLANE, key)
        await gateway_admin.gone(CONTROL_PLANE, key)
        assert await gateway_admin.find(HTTP_ROUTE, key) == before
