"""A control plane with a recording of all its states."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support import objects
from tests.support.clock import SystemClock
from tests.support.history import History, recording
from tests.support.kstatus import condition
from tests.support.namespaces import Namespace
from tests.support.operators import Operator

from .planes import manifest

NAME = "demo"
CHECKSUM = "coder.com/config-checksum"


class RecordedPlane(Namespace[CoderControlPlane]):
    """A namespace with one control plane, and every state that it and its Deployment were in."""

    kind = CONTROL_PLANE
    builders = (wiring.build,)
    since = 0
    """The resourceVersion of the last change of the pods; an older status is out of date."""

    def __init__(self, client: Client, kubeconfig: Path, namespace: str, planes: History, deployments: History) -> None:
        super().__init__(client, kubeconfig, Key(namespace, NAME), SystemClock())
        self.planes = planes
        self.deployments = deployments

    async def generation(self) -> int:
        """How often the Deployment was changed; the recorded ones may lack the last change."""
        return (await self.deployment()).metadata.generation

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Operator]:
        """The operator, idle at the start of the block."""
        async with self.operator() as operator:
            await operator.wait_idle()
            yield operator

    async def deploy(self, **spec: Any) -> Manifest:
        """Create the control plane, wait for its status, and return its Deployment."""
        await self.client.create(CONTROL_PLANE, manifest(self.namespace, **spec))
        await self.wait_until(lambda plane: "status" in plane)
        return await self.deployments.until(NAME, lambda _: True)

    async def change(self, name: str = "", **spec: Any) -> None:
        """Change the spec, and wait until the recording has it; `None` removes a field."""
        changed = await self.client.merge(CONTROL_PLANE, self.key_of(name), {"spec": spec})
        await self.wait_until(lambda plane: plane["metadata"]["generation"] >= changed.metadata.generation)

    async def wait_until(self, condition: Callable[[Manifest], object]) -> Manifest:
        return await self.planes.until(NAME, condition)

    async def waits(self, message: str) -> None:
        """Wait until the message reports what the pods wait for."""
        state = await self.wait_until(lambda plane: condition(plane, "Available").get("message") == message)
        assert condition(state, "Ready")["status"] == "False"
        assert condition(state, "Reconciling")["status"] == "True"

    async def checksum_in_status(self) -> str:
        """Wait until the status records the sources, and return the record."""
        state = await self.wait_until(lambda plane: "configChecksum" in plane.get("status", {}))
        return str(state["status"]["configChecksum"])

    async def put(self, kind: Kind[Unstructured], name: str, **data: str) -> None:
        """Write a Secret or ConfigMap with exactly this content."""
        await objects.put_data(self.client, kind, self.key_of(name), data)

    async def rolled(self, generation: int) -> str:
        """The checksum of the pods, once the Deployment has this generation."""
        live = await self.deployments.until(NAME, lambda live: live["metadata"]["generation"] >= generation)
        assert live["metadata"]["generation"] == generation
        return checksum(live)

    async def pods(self, ready: int, *, total: int | None = None, updated: int | None = None, **more: Any) -> None:
        """Write the status of the Deployment at its current generation, like its controller."""
        live = await self.client.get(DEPLOYMENT, self.key)
        total = ready if total is None else total
        status = {
            "observedGeneration": live.metadata.generation,
            "replicas": total,
            "updatedReplicas": total if updated is None else updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": None,
        }
        changed = await self.client.merge(DEPLOYMENT, self.key, {"status": status | more}, "status")
        self.since = int(changed.metadata.resource_version)


@asynccontextmanager
async def recorded_plane(kubeconfig: Path, operator: Path, namespace: str) -> AsyncIterator[RecordedPlane]:
    async with (
        Http(load(kubeconfig), "user", Metrics()) as http,
        recording(client := Client(http, "user"), namespace, CONTROL_PLANE, DEPLOYMENT) as (planes, deployments),
    ):
        yield RecordedPlane(client, operator, namespace, planes, deployments)


def checksum(deployment: Manifest) -> str:
    annotations: dict[str, str] = deployment["spec"]["template"]["metadata"].get("annotations", {})
    return annotations.get(CHECKSUM, "")


def access_url(deployment: Manifest) -> str:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return next((entry["value"] for entry in container["env"] if entry["name"] == "CODER_ACCESS_URL"), "")
