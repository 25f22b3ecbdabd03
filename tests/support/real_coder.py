"""A control plane with a real Coder: its pods run as processes, with a real PostgreSQL.

Mark the tests with `pytest.mark.coder(*versions)`; see `coder_builds`. The image selects the build: `image("2.30.0")`.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.dev import full_cluster
from coder_k8s.dev.coder_build import LATEST, builds
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.node.delays import Delays
from coder_k8s.dev.node.images import coder_image_name, coder_images
from coder_k8s.dev.node.local import ServicePort, loopback
from coder_k8s.dev.node.node import NODE, Node
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.support import objects
from tests.support.clock import SystemClock
from tests.support.controlplanes import env
from tests.support.databases import CoderdDatabase, create_database
from tests.support.namespaces import Namespace
from tests.support.operators import Builder

NAME = "coder"
HTTP_PORT = 8080
MERGE = "application/merge-patch+json"


def image(version: str = LATEST) -> str:
    """The image of a version."""
    return coder_image_name(version)


class RealPlane(Namespace[CoderControlPlane]):
    """A namespace with a control plane whose pods are processes of a real Coder, and its database."""

    kind = CONTROL_PLANE
    builders: tuple[Builder, ...] = (controlplane.build, provisioner.build, workspaceproxy.build)
    timeout = 120.0

    def __init__(
        self, client: Client, kubeconfig: Path, key: Key, node: Node, database: CoderdDatabase, address: str
    ) -> None:
        super().__init__(client, kubeconfig, key, SystemClock())
        self.node = node
        self.database = database
        self.address = address
        """The address on this machine of its Service."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        host, _, port = self.address.partition(":")
        return {Endpoint(f"{self.name}.{self.namespace}.svc.cluster.local", 80): Endpoint(host, int(port))}

    @property
    def env(self) -> list[Manifest]:
        return env(self.database.url)

    async def make(self, name: str = "", version: str = LATEST, **spec: Any) -> CoderControlPlane:
        """Create a control plane with two replicas of a version, and this database."""
        return await super().make(name, **{"image": image(version), "replicas": 2, "extraEnv": self.env} | spec)

    async def ready(self) -> CoderControlPlane:
        """Wait until the control plane is Ready."""
        await self.condition("Ready", "AllReady", "True")
        return await self.get()

    async def pods(self) -> list[Unstructured]:
        """The pods in this namespace that are not being deleted, oldest first."""
        found = [pod for pod in await objects.list_all(self.client, POD, self.namespace) if not pod.deleting]
        return sorted(found, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name))

    def pod_url(self, pod: Unstructured) -> str:
        """The URL on this machine of one pod."""
        return f"http://{loopback(pod.manifest['status']['podIP'])}:{HTTP_PORT}"

    def log(self, pod: Unstructured) -> str:
        """The log of the first container of a pod."""
        path = self.node.log(pod, pod.manifest["spec"]["containers"][0]["name"])
        return path.read_text() if path.exists() else ""

    def pid(self, pod: Unstructured) -> int:
        """The process of a server."""
        listens = f"--http-address={self.pod_url(pod).removeprefix('http://')}"
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if listens in path.read_text().split("\0"):
                    return int(path.parent.name)
        raise AssertionError(f"pod {pod.key} has no process")

    async def touch(self) -> None:
        """Change an annotation, so that the operator reconciles the control plane."""
        await self.set_annotations(self.kind, self.name, {"example.com/touched": uuid.uuid4().hex})

    @asynccontextmanager
    async def stopped_database(self) -> AsyncIterator[None]:
        """Stop PostgreSQL, and start it again."""
        await asyncio.to_thread(self.database.server.halt)
        try:
            yield
        finally:
            await asyncio.to_thread(self.database.server.resume)

    async def token(self) -> str:
        """The operator token; empty if there is none."""
        return await self.secret_value(f"{self.name}-operator-token", "token")


@asynccontextmanager
async def process_node(cluster: FullCluster, client: Client, folder: Path) -> AsyncIterator[Node]:
    """A node that runs pods as processes, with every build of Coder in the cache; no other node gets pods."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    images = coder_images(builds())
    node = Node(client, name, folder, images, Delays(first=1, missing=0.5))
    with cordoned(cluster):
        async with node.run():
            yield node
        await client.delete(NODE, await client.get(NODE, Key("", name)), unchanged=False)


@contextmanager
def cordoned(cluster: FullCluster) -> Iterator[None]:
    """Keep new pods away from the simulated node."""
    path = f"/api/v1/nodes/{full_cluster.NODE}"
    cluster.request("PATCH", path, {"spec": {"unschedulable": True}}, content_type=MERGE)
    try:
        yield
    finally:
        cluster.request("PATCH", path, {"spec": {"unschedulable": None}}, content_type=MERGE)


@asynccontextmanager
async def real_plane(
    cluster: FullCluster, operator: Path, postgres: Postgres, folder: Path, name: str = NAME
) -> AsyncIterator[RealPlane]:
    """A namespace and an empty database for a control plane, and the node for its pods."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    async with Http(load(cluster.kubeconfig), "administrator", Metrics()) as http:
        client = Client(http, "administrator")
        async with process_node(cluster, client, folder) as node:
            await client.create(objects.NAMESPACE, {"metadata": {"name": namespace}})
            database = await create_database(postgres, "template0")
            address = await node.forwarders.address(ServicePort(Key(namespace, name), 80))
            try:
                yield RealPlane(client, operator, Key(namespace, name), node, database, address)
            finally:  # the node of the next test must not get these pods
                await objects.delete_namespace(client, namespace)
