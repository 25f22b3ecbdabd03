"""The status of a pod, from the states of its containers. Nothing here does I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from coder_k8s.kube.objects import Manifest, timestamp

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class Waiting:
    """The container does not run yet, or not now."""

    reason: str = "ContainerCreating"
    message: str = ""

    def manifest(self) -> Manifest:
        return {"waiting": {"reason": self.reason, **({"message": self.message} if self.message else {})}}


@dataclass(frozen=True)
class Running:
    """The process runs."""

    started_at: datetime

    def manifest(self) -> Manifest:
        return {"running": {"startedAt": timestamp(self.started_at)}}


@dataclass(frozen=True)
class Terminated:
    """The process has exited."""

    exit_code: int
    started_at: datetime
    finished_at: datetime
    message: str = ""
    reason: str = ""

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()

    def manifest(self) -> Manifest:
        content = {
            "exitCode": self.exit_code,
            "reason": self.reason or ("Error" if self.exit_code else "Completed"),
            "startedAt": timestamp(self.started_at),
            "finishedAt": timestamp(self.finished_at),
        }
        return {"terminated": content | ({"message": self.message} if self.message else {})}


@dataclass
class ContainerState:
    """What is known about a container."""

    state: Waiting | Running | Terminated = field(default_factory=Waiting)
    last: Terminated | None = None
    """The termination before the current state."""
    restarts: int = 0
    started: bool = False
    ready: bool = False

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.exit_code == 0


States = Mapping[str, ContainerState]


@dataclass(frozen=True)
class PodState:
    """What is known about a pod; init containers and containers by name."""

    init: States
    containers: States
    pod_ip: str
    host_ip: str
    started_at: datetime


def should_restart(policy: str, exit_code: int) -> bool:
    """Return whether a container starts again after an exit."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def init_policy(policy: str) -> str:
    """Return the restart policy of init containers: they run until they succeed, unless the pod never restarts."""
    return "Never" if policy == "Never" else "OnFailure"


def phase(policy: str, init: States, containers: States) -> Phase:
    """Return the phase of a pod; the first row that matches.

    | init containers             | containers                        | policy    | phase     |
    |-----------------------------|-----------------------------------|-----------|-----------|
    | one failed                  |                                   | Never     | Failed    |
    | not all succeeded           |                                   |           | Pending   |
    |                             | one has never run                 |           | Pending   |
    |                             | one runs                          |           | Running   |
    |                             | all exited                        | Always    | Running   |
    |                             | all exited with 0                 |           | Succeeded |
    |                             | all exited                        | Never     | Failed    |
    |                             | all exited                        | OnFailure | Running   |
    """
    if not all(each.succeeded for each in init.values()):
        failed = any(isinstance(each.state, Terminated) and each.state.exit_code for each in init.values())
        return "Failed" if failed and policy == "Never" else "Pending"
    states = [each.last if isinstance(each.state, Waiting) else each.state for each in containers.values()]
    if None in states:
        return "Pending"
    if any(isinstance(state, Running) for state in states) or policy == "Always":
        return "Running"
    if all(isinstance(state, Terminated) and state.exit_code == 0 for state in states):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def pod_status(pod: Manifest, state: PodState, now: datetime) -> Manifest:
    """Return the status of a pod; conditions of other writers stay."""
    spec, before = pod["spec"], pod.get("status", {})
    current = phase(spec.get("restartPolicy", "Always"), state.init, state.containers)
    status = {
        "phase": current,
        "hostIP": state.host_ip,
        "podIP": state.pod_ip,
        "podIPs": [{"ip": state.pod_ip}],
        "startTime": timestamp(state.started_at),
        "conditions": _conditions(before.get("conditions", []), current, state, now),
        "containerStatuses": _container_statuses(spec["containers"], state.containers),
    }
    if state.init:
        status["initContainerStatuses"] = _container_statuses(spec["initContainers"], state.init)
    return status


def _container_statuses(containers: Sequence[Manifest], states: States) -> list[Manifest]:
    return [_container_status(container, states[container["name"]]) for container in containers]


def _container_status(container: Manifest, state: ContainerState) -> Manifest:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": state.restarts,
        "started": state.started,
        "ready": state.ready,
        "state": state.state.manifest(),
        "lastState": state.last.manifest() if state.last else {},
    }


def _conditions(before: Sequence[Manifest], current: Phase, state: PodState, now: datetime) -> list[Manifest]:
    initialized = all(each.succeeded for each in state.init.values())
    unready = [name for name, each in state.containers.items() if not each.ready]
    completed = current == "Succeeded"
    reason = "PodCompleted" if completed else "ContainersNotReady"
    message = "" if completed else f"containers with unready status: [{' '.join(unready)}]"
    ours = [
        _condition("Initialized", not unready or initialized or completed, "ContainersNotInitialized", ""),
        _condition("ContainersReady", not unready, reason, message),
        _condition("Ready", not unready, reason, message),
    ]
    known = {each["type"]: each for each in before}
    others = [each for name, each in known.items() if name not in {each["type"] for each in ours}]
    return [*others, *(_with_transition(each, known.get(each["type"]), now) for each in ours)]


def _condition(name: str, status: bool, reason: str, message: str) -> Manifest:
    if status:
        return {"type": name, "status": "True"}
    return {"type": name, "status": "False", "reason": reason} | ({"message": message} if message else {})


def _with_transition(condition: Manifest, before: Manifest | None, now: datetime) -> Manifest:
    unchanged = before is not None and before["status"] == condition["status"]
    since = before.get("lastTransitionTime") if before and unchanged else None
    return {**condition, "lastTransitionTime": since or timestamp(now)}
