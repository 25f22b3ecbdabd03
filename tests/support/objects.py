"""Reads and writes objects as a user of the cluster does."""

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from coder_k8s.api import RESOURCES
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition
from coder_k8s.kube.conditions import find as find_condition
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from tests.support import eventually

T = TypeVar("T", bound=Object)

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
REPLICA_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


async def create(client: Client, kind: Kind[T], key: Key, spec: Manifest) -> T:
    return await client.create(kind, {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec})


async def find(client: Client, kind: Kind[T], key: Key) -> T | None:
    try:
        return await client.get(kind, key)
    except errors.NotFound:
        return None


async def delete(client: Client, kind: Kind[Any], key: Key) -> None:
    await client.delete(kind, await client.get(kind, key), unchanged=False)


async def delete_namespace(client: Client, name: str) -> None:
    """Delete a namespace whose operator has stopped, in a cluster with controllers.

    A finalizer that nothing removes would keep the namespace, and the namespace controller would try to delete its
    content again and again until the cluster stops. So would a pod whose node is gone.
    """
    for resource in RESOURCES:
        for live in await list_all(client, resource.kind, name):
            with suppress(errors.NotFound):
                await client.merge(resource.kind, live.key, {"metadata": {"finalizers": None}})
    await delete(client, NAMESPACE, Key("", name))
    for pod in await list_all(client, POD, name):
        with suppress(errors.NotFound):
            await client.delete(POD, pod, unchanged=False, grace_seconds=0)


async def gone(client: Client, kind: Kind[Any], key: Key, within: float = 30) -> None:
    """Wait until the object does not exist."""

    async def check() -> bool:
        return await find(client, kind, key) is None

    await eventually(check, within)


async def list_all(client: Client, kind: Kind[T], namespace: str = "", labels: str = "") -> list[T]:
    pages = client.list(kind, namespace, labels=labels)
    return [kind.type.decode(item) async for page in pages for item in page.items]


async def annotate(client: Client, kind: Kind[Any], key: Key, annotations: Mapping[str, str | None]) -> None:
    """Set annotations; `None` removes one."""
    await client.merge(kind, key, {"metadata": {"annotations": annotations}})


async def condition(
    client: Client,
    kind: Kind[Any],
    key: Key,
    type: str,  # noqa: A002 - the field's name in Kubernetes
    reason: str,
    status: str = "",
    within: float = 30,
) -> Condition:
    """Wait until the condition has this reason at the current generation, and return it."""

    async def check() -> Condition:
        live = await client.get(kind, key)
        found = find_condition(live.status.conditions, type)
        assert found is not None, f"no condition {type}: {live.status}"
        assert (found.reason, found.observed_generation) == (reason, live.metadata.generation), found
        assert status in ("", found.status), found
        return found

    return await eventually(check, within)


async def conditions(client: Client, kind: Kind[Any], key: Key) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    return {each.type: (each.status, each.reason) for each in (await client.get(kind, key)).status.conditions}


async def events(client: Client, key: Key, reason: str = "") -> list[Manifest]:
    """The events of an object, oldest first."""
    found = [event.manifest for event in await list_all(client, EVENT, key.namespace)]
    about = [each for each in found if each["regarding"]["name"] == key.name and reason in ("", each["reason"])]
    return sorted(about, key=lambda each: str(each["eventTime"]))


async def put_data(client: Client, kind: Kind[Unstructured], key: Key, data: Mapping[str, str]) -> None:
    """Write a Secret or ConfigMap with exactly this content."""
    content = {name: encoded(value) if kind is SECRET else value for name, value in data.items()}
    try:
        await client.create(kind, {"metadata": {"namespace": key.namespace, "name": key.name}, "data": content})
    except errors.AlreadyExists:
        await client.replace(kind, {**await client.get_manifest(kind, key), "data": content})


async def secret_value(client: Client, key: Key, field: str) -> str:
    """A value in a Secret; empty if it does not exist."""
    found = await find(client, SECRET, key)
    return value_of_secret(found, field) if found else ""


def value_of_secret(secret: Unstructured, field: str) -> str:
    return base64.b64decode((secret.manifest.get("data") or {}).get(field, "")).decode()


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def roll_out(client: Client, key: Key, ready: int = 1) -> None:
    """Wait for a Deployment and report its current generation as rolled out."""
    live = await eventually(lambda: find(client, DEPLOYMENT, key), 30)
    assert live is not None
    status = {"observedGeneration": live.metadata.generation, **dict.fromkeys(REPLICA_COUNTS, ready)}
    await client.merge(DEPLOYMENT, key, {"status": status}, "status")


def ready_plane_status(plane: Key) -> Manifest:
    """The status of a control plane that other objects can use."""
    return {
        "url": f"http://{plane.name}.{plane.namespace}.svc.cluster.local:80",
        "image": "coder:v2.36.1",
        "operatorAccessReady": True,
        "operatorTokenSecretRef": {"name": f"{plane.name}-operator-token", "key": "token"},
    }
