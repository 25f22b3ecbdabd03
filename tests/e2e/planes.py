"""Creates and reads control planes as a user."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually, objects

ALONE = {"operatorAccess": {"disabled": True}}
"""A control plane that needs no coderd."""


async def make(client: Client, key: Key, **spec: Any) -> CoderControlPlane:
    """Create a control plane."""
    return await objects.create(client, CONTROL_PLANE, key, spec)


async def exists(client: Client, kind: Kind[Any], key: Key) -> bool:
    return await objects.find(client, kind, key) is not None


async def serve(client: Client, key: Key) -> None:
    """Wait for the Deployment and report its pod as ready."""
    await objects.roll_out(client, key)


async def condition(client: Client, key: Key, type: str, reason: str) -> Condition:  # noqa: A002
    """Wait until the condition has this reason, and return it."""

    async def check() -> Condition:
        plane = await client.get(CONTROL_PLANE, key)
        found = find(plane.status.conditions, type)
        assert found is not None, f"no condition {type}: {plane.status}"
        assert found.reason == reason, found
        return found

    return await eventually(check, timeout=20)
