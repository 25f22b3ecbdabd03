"""Somebody with all rights, who writes objects and looks at what becomes of them."""

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev import gateway_api
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.processes import poll
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import HTTP_ROUTE, ROLE, ROLE_BINDING
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.security.audit import auditing
from tests.support import eventually
from tests.support.installation import install_crds, write_operator_kubeconfig

from .planes import manifest

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)


class Administrator:
    """Writes control planes and waits for what the operator says about them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def make(self, namespace: str, name: str = "demo", **spec: Any) -> Key:
        await self.client.create(CONTROL_PLANE, manifest(namespace, name, **spec))
        return Key(namespace, name)

    async def change(self, key: Key, **spec: Any) -> None:
        """Change the spec of a control plane; `None` removes a field."""
        await self.client.merge(CONTROL_PLANE, key, {"spec": spec})

    async def annotate(self, key: Key, annotations: Mapping[str, str | None]) -> None:
        await self.client.merge(CONTROL_PLANE, key, {"metadata": {"annotations": annotations}})

    async def plane(self, key: Key) -> CoderControlPlane:
        return await self.client.get(CONTROL_PLANE, key)

    async def delete(self, kind: Kind[Any], key: Key) -> None:
        await self.client.delete(kind, await self.client.get(kind, key), unchanged=False)

    async def find(self, kind: Kind[Unstructured], key: Key) -> Unstructured | None:
        try:
            return await self.client.get(kind, key)
        except errors.NotFound:
            return None

    async def gone(self, kind: Kind[Any], key: Key, within: float = 10) -> None:
        """Wait until there is no such object."""

        async def check() -> bool:
            return await self.find(kind, key) is None

        await eventually(check, within)

    async def condition(self, key: Key, type: str, reason: str, within: float = 10) -> Condition:  # noqa: A002
        """The condition, as soon as it has this reason at the present generation."""

        async def check() -> Condition:
            plane = await self.plane(key)
            condition = find(plane.status.conditions, type)
            assert condition is not None, f"{type} is not told: {plane.status}"
            assert (condition.reason, condition.observed_generation) == (reason, plane.metadata.generation), condition
            return condition

        return await eventually(check, within)

    async def not_stalled(self, key: Key) -> None:
        """Wait until the operator has taken back that somebody must act."""

        async def check() -> bool:
            plane = await self.plane(key)
            stalled = find(plane.status.conditions, "Stalled")
            assert stalled is not None
            assert (stalled.status, stalled.observed_generation) == ("False", plane.metadata.generation), stalled
            return True

        await eventually(check)

    async def events(self, key: Key) -> list[Manifest]:
        """What was told about a control plane, oldest first."""
        found = [child.manifest for child in await self.all(EVENT, key.namespace)]
        about = [event for event in found if event["regarding"]["name"] == key.name]
        return sorted(about, key=lambda event: str(event["eventTime"]))

    async def all(self, kind: Kind[Unstructured], namespace: str = "", labels: str = "") -> list[Unstructured]:
        pages = self.client.list(kind, namespace, labels=labels)
        return [Unstructured.decode(item) async for page in pages for item in page.items]

    async def granted(self, namespace: str) -> set[tuple[str, str]]:
        """Kind and name of every Role and RoleBinding of the operator in a namespace."""
        managed = "app.kubernetes.io/managed-by=coder-k8s"
        return {
            (kind.name, child.metadata.name)
            for kind in (ROLE, ROLE_BINDING)
            for child in await self.all(kind, namespace, managed)
        }

    async def make_namespace(self, labels: Mapping[str, str] | None = None) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        await self.client.create(NAMESPACE, {"metadata": {"name": name, "labels": labels or {}}})
        return name

    async def label_namespace(self, name: str, labels: Mapping[str, str | None]) -> None:
        await self.client.merge(NAMESPACE, Key("", name), {"metadata": {"labels": labels}})


@contextmanager
def own_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster for an operator that may see all of it, known by the kubeconfig `operator_of` it."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder), auditing(audit)) as cluster:
        install_crds(cluster)
        write_operator_kubeconfig(cluster, operator_of(cluster))
        yield cluster


def install_gateway_api(cluster: ClusterAccess) -> None:
    """The definitions of the Gateway API, served when this returns: an operator looks for them only now and then."""
    cluster.kubectl("apply", "--server-side", "--filename=-", input=gateway_api.manifests())
    assert poll(lambda: serves_routes(cluster), timeout=30), "the Gateway API is not served"


def serves_routes(cluster: ClusterAccess) -> bool:
    return cluster.request("GET", HTTP_ROUTE.path(Key("", "")))[0] == HTTPStatus.OK


def operator_of(cluster: Cluster) -> Path:
    return cluster.folder / "operator.kubeconfig"


@asynccontextmanager
async def administrator(kubeconfig: Path) -> AsyncIterator[Administrator]:
    async with Http(load(kubeconfig), "administrator", Metrics()) as http:
        yield Administrator(Client(http, "administrator"))


def passes(runtime: Runtime) -> int:
    """How many reconciles the operator has ended."""
    samples = next(iter(runtime.metrics.reconciles.collect())).samples
    return sum(int(sample.value) for sample in samples if sample.name.endswith("_total"))
