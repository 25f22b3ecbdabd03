"""What can be seen of the pods themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

from coder_k8s.controllers.labels import selector
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Child

STARTING = ("ContainerCreating", "PodInitializing")
"""A pod that waits for no other reason may just be young, and says less than any other."""


async def failing(client: Client, namespace: str, labels: Mapping[str, str]) -> str:
    """Why the first pod that waits does so, such as `ImagePullBackOff`; empty when none says."""
    pages = client.list(POD, namespace, labels=selector(labels))
    pods = [Child.decode(item) async for page in pages for item in page.items]
    waiting = [
        (reason in STARTING, pod.metadata.name, reason, message)
        for pod in pods
        for reason, message in _waiting(pod.manifest)
    ]
    if not waiting:
        return ""
    _, name, reason, message = min(waiting, key=lambda entry: entry[:2])
    return f"pod {name}: {reason}" + (f": {message}" if message else "")


def has_variable(template: Mapping[str, Any], name: str) -> bool:
    """Whether the first container of a pod template sets an environment variable."""
    containers = template.get("spec", {}).get("containers", [])
    return any(entry["name"] == name for container in containers[:1] for entry in container.get("env", []))


def _waiting(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    status = pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        if waiting := container.get("state", {}).get("waiting"):
            yield waiting.get("reason", "Waiting"), waiting.get("message", "")
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            yield condition.get("reason", "Unschedulable"), condition.get("message", "")
