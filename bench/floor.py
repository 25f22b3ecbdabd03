"""A minimal baseline: `python -m bench.floor KUBECONFIG WORKERS STATUS`.

For each control plane that a watch shows, it writes the objects that the operator would write, and the status of the
file. It has the client and the concurrency of the operator, but no logic.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.controlplane.deployment import PodInputs, deployment
from coder_k8s.controllers.controlplane.objects import service, service_account
from coder_k8s.controllers.controlplane.rbac import ROLES
from coder_k8s.controllers.labels import DIGEST
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Manifest, ObjectMeta

from .cluster import CHILDREN, MANY

MODEL = CoderControlPlane(metadata=ObjectMeta(namespace=MANY, name="name-of-plane", uid="uid-of-plane"))
ControlPlaneResolver = asyncio.Queue[CoderControlPlane]


def template(status: Manifest) -> bytes:
    """Return all objects of a control plane, children first."""
    children = [
        service_account(MODEL),
        ROLES.role(MODEL, MANY),
        ROLES.role_binding(MODEL, MANY),
        deployment(MODEL, PodInputs()),
        service(MODEL),
    ]
    for child in children:
        child["metadata"]["labels"][DIGEST] = "0123456789abcdef"
    return msgspec.json.encode([*children, status])


def filled(template: bytes, plane: CoderControlPlane) -> list[Any]:
    name, uid = plane.metadata.name.encode(), plane.metadata.uid.encode()
    made: list[Any] = msgspec.json.decode(template.replace(b"name-of-plane", name).replace(b"uid-of-plane", uid))
    return made


async def work(client: Client, planes: ControlPlaneResolver, template: bytes) -> None:
    while True:
        plane = await planes.get()
        *children, status = filled(template, plane)
        for kind, child in zip(CHILDREN, children, strict=True):
            await client.create(kind, child)
        await client.merge(CONTROL_PLANE, plane.key, {"status": status}, "status")


async def main(kubeconfig: Path, workers: int, status: Manifest) -> None:
    planes: ControlPlaneResolver = asyncio.Queue()

    def take(change: Change[CoderControlPlane]) -> None:
        if change.old is None and change.new is not None:
            planes.put_nowait(change.new)

    async with Http(load(kubeconfig), "floor", Metrics()) as http, asyncio.TaskGroup() as group:
        client = Client(http, "floor")
        informer = Informer(client, CONTROL_PLANE, [MANY], metrics=Metrics())
        informer.listen(take)
        group.create_task(informer.run())
        for _ in range(workers):
            group.create_task(work(client, planes, template(status)))
        await informer.synced.wait()
        print("ready", flush=True)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), msgspec.json.decode(Path(sys.argv[3]).read_bytes())))
