"""Creates Deployments and pods of control planes without an operator."""

from contextlib import suppress
from typing import Any

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.deployment import PodInputs, deployment
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Unstructured


async def make_ready_plane(client: Client, namespace: str, name: str, **spec: Any) -> Unstructured:
    """Create a control plane and its Deployment, as the operator would, and return the Deployment."""
    plane = await client.create(CONTROL_PLANE, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})
    made = await client.create(DEPLOYMENT, deployment(plane, PodInputs()))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), plane.spec.replicas)
    status = {"observedGeneration": made.metadata.generation, **counts}
    return await client.merge(DEPLOYMENT, made.key, {"status": status}, "status")


async def put_waiting_pod(client: Client, deployment: Unstructured, reason: str) -> None:
    """Create a pod of a Deployment whose container waits."""
    container = {"name": "main", "image": "coder", "imageID": "", "ready": False, "restartCount": 0}
    await put_pod(client, deployment, containerStatuses=[container | {"state": {"waiting": {"reason": reason}}}])


async def put_pod(client: Client, deployment: Unstructured, **status: Any) -> None:
    """Create a pod of a Deployment with this status."""
    namespace, template = deployment.metadata.namespace, deployment.manifest["spec"]["template"]
    account = template["spec"].get("serviceAccountName", "default")
    with suppress(errors.AlreadyExists):
        await client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": account}})
    metadata = {
        "namespace": namespace,
        "name": f"{deployment.metadata.name}-1",
        "labels": template["metadata"]["labels"],
    }
    spec = {"serviceAccountName": account, "containers": [{"name": "main", "image": "coder"}]}
    made = await client.create(POD, {"metadata": metadata, "spec": spec})
    await client.merge(POD, made.key, {"status": status}, "status")
