"""Pods as decisions about their number see them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from coder_k8s.kube.objects import Unstructured

from .daemons import ready_since
from .protection import cost_of
from .victims import PodState

ENDED = ("Succeeded", "Failed")
LONG_AGO = datetime.min.replace(tzinfo=UTC)


def active(pods: Iterable[Unstructured]) -> list[Unstructured]:
    """The pods that a ReplicaSet counts: neither being deleted nor ended."""
    return [pod for pod in pods if not pod.deleting and _phase(pod) not in ENDED]


def ended(pods: Iterable[Unstructured]) -> frozenset[str]:
    """The names of the other pods."""
    pods = list(pods)
    counted = {pod.metadata.name for pod in active(pods)}
    return frozenset(pod.metadata.name for pod in pods if pod.metadata.name not in counted)


def states(pods: Iterable[Unstructured], idle_since: Mapping[str, datetime]) -> list[PodState]:
    """The state of each active pod; `idle_since` is when its daemon was first seen without a job."""
    return [
        PodState(
            name=pod.metadata.name,
            created=pod.metadata.creation_timestamp or LONG_AGO,
            ready_since=ready_since(pod),
            scheduled=bool(pod.manifest.get("spec", {}).get("nodeName")),
            running=_phase(pod) == "Running",
            cost=cost_of(pod),
            idle_since=idle_since.get(pod.metadata.name),
        )
        for pod in active(pods)
    ]


def missing(pods: Iterable[Unstructured], wanted: int, since: datetime) -> list[PodState]:
    """Pods that a Deployment asks for and that do not exist, as pods that do not start: a quota may reject them."""
    number = wanted - len(active(pods))
    return [PodState(f"missing {index}", since, scheduled=False, running=False) for index in range(number)]


def is_rolling(pods: Iterable[Unstructured]) -> bool:
    """Whether pods of several templates exist. Pods of other owners do not count, whatever their labels are."""
    own = [pod for pod in active(pods) if pod.controller is not None and pod.controller.kind == "ReplicaSet"]
    return len({pod.metadata.labels.get("pod-template-hash") for pod in own}) > 1


def _phase(pod: Unstructured) -> str:
    phase: str = (pod.manifest.get("status") or {}).get("phase", "Pending")
    return phase
