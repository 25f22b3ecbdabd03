"""Control planes in any namespace, written with administrator permissions."""

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.dev import gateway_api
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.processes import poll
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import HTTP_ROUTE, ROLE, ROLE_BINDING
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.security.audit import auditing
from tests.support import eventually, objects
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator

from .planes import manifest


class Administrator:
    """Writes control planes, and waits for their status."""

    kind: Kind[Any] = CONTROL_PLANE

    def __init__(self, client: Client) -> None:
        self.client = client

    async def make(self, namespace: str, name: str = "demo", **spec: Any) -> Key:
        await self.client.create(CONTROL_PLANE, manifest(namespace, name, **spec))
        return Key(namespace, name)

    async def change(self, key: Key, **spec: Any) -> None:
        """Change the spec of an object; `None` removes a field."""
        await self.client.merge(self.kind, key, {"spec": spec})

    async def annotate(self, key: Key, annotations: Mapping[str, str | None]) -> None:
        await objects.annotate(self.client, self.kind, key, annotations)

    async def plane(self, key: Key) -> CoderControlPlane:
        return await self.client.get(CONTROL_PLANE, key)

    async def delete(self, kind: Kind[Any], key: Key) -> None:
        await objects.delete(self.client, kind, key)

    async def find(self, kind: Kind[Unstructured], key: Key) -> Unstructured | None:
        return await objects.find(self.client, kind, key)

    async def gone(self, kind: Kind[Any], key: Key, within: float = 30) -> None:
        await objects.gone(self.client, kind, key, within)

    async def condition(self, key: Key, type: str, reason: str, within: float = 30) -> Condition:  # noqa: A002
        """The condition, as soon as it has this reason at the current generation."""
        return await objects.condition(self.client, self.kind, key, type, reason, within=within)

    async def not_stalled(self, key: Key) -> None:
        """Wait until the object is not stalled."""

        async def check() -> bool:
            owner = await self.client.get(self.kind, key)
            stalled = find(owner.status.conditions, "Stalled")
            assert stalled is not None
            assert (stalled.status, stalled.observed_generation) == ("False", owner.metadata.generation), stalled
            return True

        await eventually(check)

    async def events(self, key: Key) -> list[Manifest]:
        """The events about an object, oldest first."""
        return await objects.events(self.client, key)

    async def all(self, kind: Kind[Unstructured], namespace: str = "", labels: str = "") -> list[Unstructured]:
        return await objects.list_all(self.client, kind, namespace, labels)

    async def granted(self, namespace: str) -> set[tuple[str, str]]:
        """Kind and name of every Role and RoleBinding of the operator in a namespace."""
        managed = "app.kubernetes.io/managed-by=coder-k8s"
        return {
            (kind.name, child.metadata.name)
            for kind in (ROLE, ROLE_BINDING)
            for child in await self.all(kind, namespace, managed)
        }

    async def make_namespace(self, labels: Mapping[str, str] | None = None, name: str = "") -> str:
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        await self.client.create(NAMESPACE, {"metadata": {"name": name, "labels": labels or {}}})
        return name

    async def label_namespace(self, name: str, labels: Mapping[str, str | None]) -> None:
        await self.client.merge(NAMESPACE, Key("", name), {"metadata": {"labels": labels}})


def writes(operator: Operator) -> int:
    """How many writes the operator sent, without events."""
    return sum(request.is_write and "/events" not in request.target for request in operator.interceptor.requests)


@contextmanager
def own_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster for an operator that watches all namespaces; `operator_of` has its kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder), auditing(audit)) as cluster:
        install_crds(cluster)
        write_operator_kubeconfig(cluster, operator_of(cluster))
        yield cluster


def install_gateway_api(cluster: ClusterAccess) -> None:
    """Install the CRDs of the Gateway API, and wait until they are served: an operator checks for them only rarely."""
    cluster.kubectl("apply", "--server-side", "--filename=-", input=gateway_api.manifests())
    assert poll(lambda: serves_routes(cluster), timeout=30), "the Gateway API is not served"


def ensure_gateway_api(cluster: ClusterAccess) -> None:
    if not serves_routes(cluster):
        install_gateway_api(cluster)


def serves_routes(cluster: ClusterAccess) -> bool:
    return cluster.request("GET", HTTP_ROUTE.path(Key("", "")))[0] == HTTPStatus.OK


def operator_of(cluster: Cluster) -> Path:
    return cluster.folder / "operator.kubeconfig"


@asynccontextmanager
async def administrator(kubeconfig: Path) -> AsyncIterator[Administrator]:
    async with Http(load(kubeconfig), "administrator", Metrics()) as http:
        yield Administrator(Client(http, "administrator"))
