"""A control plane whose Deployment is there and ready, without an operator at work on it."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.deployment import Surroundings, deployment
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Child


async def make_ready_plane(client: Client, namespace: str, name: str, **spec: Any) -> Child:
    """The Deployment of the control plane, as the operator makes it."""
    plane = await client.create(CONTROL_PLANE, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})
    made = await client.create(DEPLOYMENT, deployment(plane, Surroundings()))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), plane.spec.replicas)
    status = {"observedGeneration": made.metadata.generation, **counts}
    return await client.merge(DEPLOYMENT, made.key, {"status": status}, "status")
