"""Runs the pods of `coder-k8s dev` as processes, with a real Coder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coder_k8s.kube.client import Client

from . import samples
from .coder_build import builds
from .node.images import Images, coder_images
from .node.local import ServicePort
from .node.node import Node

NODE = "this-machine"
FOLDER = "pods"


def images(version: str, program: Path) -> Images:
    """Return the images of the node: this program, and all builds in the cache."""
    return coder_images({**builds(), version: program})


@asynccontextmanager
async def run_node(client: Client, folder: Path, images: Images, port: int) -> AsyncIterator[Node]:
    """Run a node, with a forwarder on this port to the Service of the sample."""
    node = Node(client, NODE, folder / FOLDER, images)
    async with node.run():
        await node.forwarders.address(ServicePort(samples.PLANE, 80), port)
        yield node


def commands(folder: Path, port: int) -> list[str]:
    """Return commands to try with a real Coder."""
    namespace, plane = samples.PLANE.namespace, samples.PLANE.name
    return [
        f"kubectl get pods -n {namespace} -o wide",
        f"kubectl delete pod -n {namespace} -l app.kubernetes.io/instance={plane} --wait=false  # each is replaced",
        f"kubectl rollout restart deployment/{plane} -n {namespace}",
        f"curl http://127.0.0.1:{port}/api/v2/buildinfo",
        f"tail -f {folder / FOLDER}/*/coder.log",
    ]
