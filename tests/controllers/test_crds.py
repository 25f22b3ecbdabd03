"""CRDs that are older than the operator: no action is taken that their status cannot record."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, WORKSPACE_PROXY
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.controllers.crds import RECHECK, example
from coder_k8s.dev.cluster import Cluster
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import poll
from coder_k8s.kube.objects import Kind, Manifest
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens, plane_namespace
from tests.support.databases import CoderdDatabase, create_database
from tests.support.installation import (
    create_namespace,
    definition,
    install_crds,
    status_schema,
    write_operator_kubeconfig,
)
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace
from tests.support.workspaceproxies import ProxyNamespace, proxy_namespace

WHILE = RECHECK.total_seconds()


class Changing:
    """A cluster whose CRDs change while the operator runs."""

    def __init__(self, cluster: Cluster, operator: Path) -> None:
        self.cluster = cluster
        self.admin = cluster.kubeconfig
        self.operator = operator
        self.namespace = create_namespace(cluster)
        self._lost: set[tuple[Kind[Any], str]] = set()

    def restore(self) -> None:
        """Install the CRDs of this version that are not installed."""
        for kind, field in tuple(self._lost):
            self.install(kind, field)

    def lose(self, kind: Kind[Any], field: str) -> None:
        """Install a CRD whose status lacks a field."""
        self._lost.add((kind, field))
        self._install(kind, definition(kind, field), field, known=False)

    def install(self, kind: Kind[Any], field: str) -> None:
        """Install the CRD of this version."""
        self._install(kind, definition(kind), field, known=True)
        self._lost.remove((kind, field))

    def _install(self, kind: Kind[Any], crd: Manifest, field: str, *, known: bool) -> None:
        """Install a CRD, and wait until the API server uses it."""
        manifest = json.dumps(crd)
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=manifest)
        path = f"/apis/{kind.group}/{kind.version}/namespaces/{self.namespace}/{kind.plural}"
        probe = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": "probe"},
            "spec": {"controlPlaneRef": {"name": "x"}} if kind is not CONTROL_PLANE else {},
            "status": {field: None},
        }

        def is_created() -> bool:
            _, body = self.cluster.request("POST", f"{path}?fieldValidation=Strict&dryRun=All", probe)
            return (f"status.{field}" in json.loads(body).get("message", "")) != known

        assert poll(is_created, 30), body_of(field, known)


def body_of(field: str, known: bool) -> str:
    return f"status.{field} should be {'known' if known else 'unknown'}"


@pytest.fixture(scope="module")
def operator_kubeconfig(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    install_crds(module_cluster)
    return write_operator_kubeconfig(module_cluster, tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture
def crds_that_change(module_cluster: Cluster, operator_kubeconfig: Path) -> Iterator[Changing]:
    changing = Changing(module_cluster, operator_kubeconfig)
    yield changing
    changing.restore()


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    return await create_database(postgres, "2.36.1")


@pytest.fixture
async def plane(crds_that_change: Changing, database: CoderdDatabase) -> AsyncIterator[PlaneNamespace]:
    at = crds_that_change
    async with plane_namespace(at.admin, at.operator, at.namespace, database_url=database.url) as made:
        yield made


@pytest.fixture
async def place(crds_that_change: Changing) -> AsyncIterator[ProvisionerNamespace]:
    at = crds_that_change
    async with provisioner_namespace(at.admin, at.operator, at.namespace) as made:
        await made.make_plane("demo")
        yield made


@pytest.fixture
async def proxies(crds_that_change: Changing) -> AsyncIterator[ProxyNamespace]:
    at = crds_that_change
    async with proxy_namespace(at.admin, at.operator, at.namespace) as made:
        yield made


async def test_control_plane_gets_no_token_until_its_status_can_record_it(
    crds_that_change: Changing, plane: PlaneNamespace, database: CoderdDatabase
) -> None:
    crds_that_change.lose(CONTROL_PLANE, "operatorTokenSecretRef")
    await plane.make(extraEnv=env(database.url))
    async with plane.operator() as operator:
        stalled = await plane.condition("Stalled", "CRDOutdated", "True")
        assert "do not store status.operatorTokenSecretRef." in stalled.message
        assert stalled.message.endswith("Install the CRDs of the operator's version")
        assert (await plane.event("CRDOutdated"))["note"] == stalled.message
        await operator.wait_idle()
        assert WHILE - 5 < (operator.requeue_after() or 0) <= WHILE
        assert await operator_tokens(database) == []
        before = operator.write_requests()
        await operator.reconcile()
        assert operator.write_requests() == before  # the result is valid for a minute, for all objects
        crds_that_change.install(CONTROL_PLANE, "operatorTokenSecretRef")
        await operator.later(seconds=WHILE + 1)
        await plane.roll_out()
        await plane.condition("OperatorAccessReady", "TokenReady", "True")
        assert (await plane.conditions())["Stalled"][0] == "False"


async def test_provisioner_gets_no_key_until_its_status_can_record_retiring_keys(
    crds_that_change: Changing, place: ProvisionerNamespace
) -> None:
    crds_that_change.lose(PROVISIONER, "retiringKeys")
    await place.make()
    async with place.operator() as operator:
        stalled = await place.condition("Stalled", "CRDOutdated", "True")
        assert "do not store status.retiringKeys." in stalled.message
        await operator.wait_idle()
        assert (place.keys, place.plane.request_count()) == ({}, 0)
        crds_that_change.install(PROVISIONER, "retiringKeys")
        place.clock.advance(seconds=WHILE + 1)
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


async def test_rotation_loses_no_key_if_the_crds_lose_a_field(
    crds_that_change: Changing, place: ProvisionerNamespace
) -> None:
    await place.make()
    async with place.operator() as operator:
        first = (await place.ready(operator)).status.provisioner_key_id
        crds_that_change.lose(PROVISIONER, "retiringKeys")
        await place.change(tags={"zone": "b"})
        assert "status.retiringKeys" in (await place.condition("Stalled", "CRDOutdated", "True")).message
        assert (await place.get()).status.provisioner_key_id == first
        assert len(place.keys) == 1
        crds_that_change.install(PROVISIONER, "retiringKeys")
        await operator.wait_idle()
        place.clock.advance(seconds=WHILE + 1)
        await operator.reconcile(place.key)
        assert len(await eventually(lambda: retiring(place))) == 1


async def retiring(place: ProvisionerNamespace) -> list[RetiringKey]:
    return (await place.get()).status.retiring_keys


async def test_proxy_is_not_registered_until_its_status_can_record_it(
    crds_that_change: Changing, proxies: ProxyNamespace
) -> None:
    crds_that_change.lose(WORKSPACE_PROXY, "retiringProxies")
    await proxies.make()
    async with proxies.operator() as operator:
        stalled = await proxies.condition("Stalled", "CRDOutdated", "True")
        assert "do not store status.retiringProxies." in stalled.message
        await operator.wait_idle()
        assert (proxies.registrations(), "sydney" in proxies.proxies) == (0, False)
        crds_that_change.install(WORKSPACE_PROXY, "retiringProxies")
        await operator.later(seconds=WHILE + 1)
        await eventually(lambda: "sydney" in proxies.proxies)


async def test_new_crds_are_noticed_also_while_objects_are_reconciled_more_often(
    crds_that_change: Changing, plane: PlaneNamespace, database: CoderdDatabase
) -> None:
    crds_that_change.lose(CONTROL_PLANE, "operatorTokenSecretRef")
    await plane.make(extraEnv=env(database.url))
    async with plane.operator() as operator:
        await plane.condition("Stalled", "CRDOutdated", "True")
        await operator.wait_idle()
        crds_that_change.install(CONTROL_PLANE, "operatorTokenSecretRef")
        for _ in range(3):
            await operator.later(seconds=WHILE * 3 / 4)
        assert (await plane.conditions())["Stalled"] == ("False", "Progressing")


async def test_fields_are_checked_once_per_process_also_in_steady_state(
    crds_that_change: Changing, plane: PlaneNamespace, database: CoderdDatabase
) -> None:
    await plane.make(extraEnv=env(database.url))
    async with plane.operator() as operator:
        await plane.roll_out()
        await plane.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
    crds_that_change.lose(CONTROL_PLANE, "image")
    asked = sum(plane.coderd.state.requests.values())
    async with plane.operator() as operator:
        assert "status.image" in (await plane.condition("Stalled", "CRDOutdated", "True")).message
    assert sum(plane.coderd.state.requests.values()) == asked
    crds_that_change.install(CONTROL_PLANE, "image")
    async with plane.operator() as operator:
        await plane.condition("Ready", "AllReady", "True")
    async with plane.operator() as operator:
        await operator.wait_idle()
        assert (operator.writes(), operator.write_requests()) == (0, 1)
        await operator.reconcile()
        assert operator.write_requests() == 1


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind.name)
def test_every_field_of_a_status_is_checked(resource: Any) -> None:
    kind: Kind[Any] = resource.kind
    [status] = [field.type for field in msgspec.structs.fields(kind.type) if field.name == "status"]
    assert set(declared(status_schema(definition(kind)))) - {"conditions"} == set(given(example(status)))


def declared(schema: Manifest, at: str = "") -> Iterator[str]:
    """The fields of a schema at every level, except those of conditions."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{at}{name}"
        if "additionalProperties" in inner:  # the example of a map has the key x
            yield f"{at}{name}.x"
        if name != "conditions":
            yield from declared(inner.get("items", inner), f"{at}{name}.")


def given(value: Manifest, at: str = "") -> Iterator[str]:
    for name, content in value.items():
        yield f"{at}{name}"
        inner = content[0] if isinstance(content, list) else content
        if isinstance(inner, dict):
            yield from given(inner, f"{at}{name}.")
