"""Why the pods of a Deployment do not become ready."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coder_k8s.kube.cache import Cache
from coder_k8s.kube.objects import Key, Object, Unstructured

from .labels import COMPONENT, INSTANCE
from .names import derived

STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons of a pod that is just starting."""
CRASHED = "CrashLoopBackOff"
UNPULLED = "ImagePullBackOff"
PULL_FAILURES = (UNPULLED, "ErrImagePull")
"""The kubelet alternates between these for one image, with an error text that differs each time."""


def failing(pods: Iterable[Unstructured]) -> str:
    """Why the first pod that is not ready is not, such as `ImagePullBackOff`; empty if no pod reports a cause.

    | a container, or the pod             | message                                            |
    |-------------------------------------|----------------------------------------------------|
    | has an image that cannot be pulled  | `ImagePullBackOff` and the image                   |
    | waits for another reason            | the reason and message of the kubelet              |
    | crashed before and is not ready     | `CrashLoopBackOff`, its exit code and last message |
    | has no node                         | `Unschedulable`, and the message of the scheduler  |
    | is just being created, or is deleted | nothing                                           |
    """
    causes = [
        (pod.metadata.name, reason, message)
        for pod in pods
        if not pod.deleting
        for reason, message in _causes(pod.manifest.get("status") or {})
        if reason not in STARTING
    ]
    if not causes:
        return ""
    name, reason, message = min(causes, key=lambda cause: cause[0])
    return f"pod {name}: {reason}" + (f": {message}" if message else "")


def by_pod(owners: Cache[Any], component: str) -> Callable[[Unstructured], Iterable[Key]]:
    """The object that a pod belongs to, while the pod reports a cause.

    The other pods need no watch: the Deployment counts them, and is watched.
    """
    index = owners.index(_instance)

    def of_pod(pod: Unstructured) -> Iterable[Key]:
        labels = pod.metadata.labels
        relevant = labels.get(COMPONENT) == component and failing([pod])
        return index[Key(pod.metadata.namespace, labels.get(INSTANCE, ""))] if relevant else []

    return of_pod


def _instance(owner: Object) -> Iterable[Key]:
    return [Key(owner.metadata.namespace, derived(owner.metadata.name))]


def _causes(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = container.get("state", {}).get("waiting") or {}
        last = container.get("lastState", {}).get("terminated")
        if container.get("ready"):
            continue
        if last and waiting.get("reason", CRASHED) == CRASHED:  # also while it runs again, so that this stays the same
            detail = (last.get("message") or last.get("reason", "")).strip()
            yield CRASHED, f"exit code {last['exitCode']}" + (f": {detail}" if detail else "")
        elif waiting.get("reason") in PULL_FAILURES:
            yield UNPULLED, f'Back-off pulling image "{container["image"]}"'
        elif waiting:
            yield waiting.get("reason", "Waiting"), waiting.get("message", "")
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            yield condition.get("reason", "Unschedulable"), condition.get("message", "")
