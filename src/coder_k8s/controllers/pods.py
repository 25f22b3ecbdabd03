"""Why the pods of a Deployment do not become ready."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from coder_k8s.kube.cache import Cache
from coder_k8s.kube.messages import without_times
from coder_k8s.kube.objects import Key, Object, Unstructured

from .labels import COMPONENT, INSTANCE
from .names import derived

T = TypeVar("T", bound=Object)

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


def is_ready(pod: Unstructured) -> bool:
    conditions = (pod.manifest.get("status") or {}).get("conditions") or []
    return not pod.deleting and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_over(pod: Unstructured) -> bool:
    """Whether no container of the pod runs or will run, such as after an eviction. Its ReplicaSet keeps such a pod."""
    return (pod.manifest.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def crash_count(pod: Unstructured, container: str) -> int:
    """How often a container of the pod was restarted."""
    statuses = (pod.manifest.get("status") or {}).get("containerStatuses") or []
    return next((each.get("restartCount", 0) for each in statuses if each["name"] == container), 0)


def by_pod(
    owners: Cache[T], component: str, needs_all: Callable[[T], bool] = lambda _: False
) -> Callable[[Unstructured], Iterable[Key]]:
    """The object that a pod belongs to, while the pod reports a cause.

    The other pods need no watch: the Deployment counts them, and is watched. An object for which `needs_all` is true
    is reconciled for every change of its pods.
    """
    index = owners.index(_instance)

    def of_pod(pod: Unstructured) -> Iterable[Key]:
        labels = pod.metadata.labels
        if labels.get(COMPONENT) != component:
            return []
        keys = index[Key(pod.metadata.namespace, labels.get(INSTANCE, ""))]
        if failing([pod]):
            return keys
        return [key for key in keys if (owner := owners.get(key)) is not None and needs_all(owner)]

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
            detail = without_times(last.get("message") or last.get("reason", "")).strip()
            yield CRASHED, f"exit code {last['exitCode']}" + (f": {detail}" if detail else "")
        elif waiting.get("reason") in PULL_FAILURES:
            yield UNPULLED, f'Back-off pulling image "{container["image"]}"'
        elif waiting:
            yield waiting.get("reason", "Waiting"), waiting.get("message", "")
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            yield condition.get("reason", "Unschedulable"), condition.get("message", "")
