"""What a user of the operator writes and sees."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually

ALONE = {"operatorAccess": {"disabled": True}}
"""A control plane that needs nobody to come to rest."""


async def make(client: Client, key: Key, **spec: Any) -> CoderControlPlane:
    """Create a control plane."""
    return await client.create(
        CONTROL_PLANE, {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec}
    )


async def exists(client: Client, kind: Kind[Any], key: Key) -> bool:
    try:
        await client.get(kind, key)
    except errors.NotFound:
        return False
    return True


async def serve(client: Client, key: Key) -> None:
    """Say that the pod is ready, as soon as there is a Deployment that asks for one."""
    await eventually(lambda: exists(client, DEPLOYMENT, key))
    generation = (await client.get(DEPLOYMENT, key)).metadata.generation
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    await client.merge(DEPLOYMENT, key, {"status": {"observedGeneration": generation, **counts}}, "status")


async def condition(client: Client, key: Key, type: str, reason: str) -> Condition:  # noqa: A002
    """The condition, as soon as it has this reason."""

    async def check() -> Condition:
        plane = await client.get(CONTROL_PLANE, key)
        found = find(plane.status.conditions, type)
        assert found is not None, f"no condition {type}: {plane.status}"
        assert found.reason == reason, found
        return found

    return await eventually(check, timeout=20)
