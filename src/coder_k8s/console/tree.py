"""A tree of control planes with their provisioners, proxies and pods. `status -o json` and `-o yaml` print it.

Every field is always present. `details` holds the fields of one kind, with the names of its status: `version`, `url`,
`licenseTier`, `health` and `unservedJobs` (a number) of a control plane; `organizationName`,
`provisionerKeyName`, `retiringKeys` and `daemons` of a provisioner; `registered`, `proxyName` and `coderURL` of a
proxy; `organizationName`, `activeVersion`, `importing`, `failed` and `revision` of a template.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderObject, CommonCondition, ControlPlaneCondition, reasons
from coder_k8s.api.reasons.template import TemplateCondition
from coder_k8s.controllers.labels import paused
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key, Kind

from .details import details
from .objects import Found, Pod, PodCondition, Target
from .operator import OperatorNode

FORMAT_VERSION = 1
"""Version of the JSON format; incremented for incompatible changes."""

ADVISORY = (
    ControlPlaneCondition.HEALTHY,
    ControlPlaneCondition.JOBS_SERVED,
    ControlPlaneCondition.SCHEDULES_SERVED,
    TemplateCondition.PROMOTED,
    TemplateCondition.IN_SYNC,
    TemplateCondition.SETTINGS_APPLIED,
)
"""Conditions that `Ready` does not depend on, and that users should know if they are False."""
INTENDED = {reasons.NOT_CONFIGURED, reasons.DISABLED, reasons.NOT_MANAGED, reasons.SCALED_TO_ZERO}
"""Reasons of conditions that are not True as the spec requires."""


class _Part(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all parts of the tree."""


class UnsatisfiedCondition(_Part):
    """A condition that is not satisfied."""

    type: str
    status: str
    reason: str
    message: str


class PodNode(_Part):
    """A pod, and the reason why it is not ready."""

    name: str
    ready: bool
    phase: str
    reason: str
    message: str
    restarts: int


class Node(_Part):
    """An object of one of our kinds. If it is referenced but does not exist, `exists` is false."""

    kind: str
    namespace: str
    name: str
    exists: bool = True
    ready: str = "Unknown"
    reason: str = ""
    message: str = ""
    stalled: bool = False
    paused: bool = False
    deleting: bool = False
    phase: str = ""
    replicas: int = 0
    ready_replicas: int = 0
    details: dict[str, Any] = {}
    conditions: list[UnsatisfiedCondition] = []
    pods: list[PodNode] = []
    children: list["Node"] = []


class Tree(_Part):
    """The output of `status`; `podsListed` is false if the user cannot list pods."""

    version: int = FORMAT_VERSION
    pods_listed: bool = True
    operator: OperatorNode | None = None
    items: list[Node] = []

    @property
    def ready(self) -> bool:
        """Whether all objects are ready."""
        nodes = [*self.items, *(child for node in self.items for child in node.children)]
        return all(node.ready == "True" for node in nodes)

    def without_times(self) -> "Tree":
        """Return the tree without the time that changes whenever the operator renews its Lease."""
        operator = msgspec.structs.replace(self.operator, last_seen="") if self.operator else None
        return msgspec.structs.replace(self, operator=operator)


def build(found: Found, target: Target | None = None, operator: OperatorNode | None = None) -> Tree:
    """Return the tree of all objects, or of the target and its children."""
    planes = [each for kind, each in found.objects if kind == CONTROL_PLANE]
    roots = {plane.key: _node(CONTROL_PLANE, plane, found.pods) for plane in planes}
    standalone: list[Node] = []
    selected = {plane.key for plane in planes if target is None or target.matches(CONTROL_PLANE, plane)}
    for kind, each in found.objects:
        if kind == CONTROL_PLANE:
            continue
        node = _node(kind, each, found.pods)
        reference = getattr(each.spec, "control_plane_ref", None)
        key = Key(each.metadata.namespace, reference.name) if reference else None
        if target is not None and key not in selected and not target.matches(kind, each):
            continue
        if key is None:
            standalone.append(node)
        else:
            roots.setdefault(key, _missing(key.namespace, key.name)).children.append(node)
    chosen = [node for key, node in roots.items() if target is None or key in selected or node.children]
    items = sorted([*chosen, *standalone], key=_order)
    return Tree(pods_listed=found.pods is not None, operator=operator, items=items)


def _order(node: Node) -> tuple[str, bool, str]:
    return node.namespace, node.kind != CONTROL_PLANE.name, node.name


def _missing(namespace: str, name: str) -> Node:
    return Node(
        kind=CONTROL_PLANE.name,
        namespace=namespace,
        name=name,
        exists=False,
        ready="False",
        reason="NotFound",
        message="Does not exist, but is referenced by the objects below",
        children=[],
    )


def _node(kind: Kind[Any], of: CoderObject, pods: list[Pod] | None) -> Node:
    ready, reason, message = _readiness(of)
    stalled = find(of.status.conditions, CommonCondition.STALLED)
    return Node(
        kind=kind.name,
        namespace=of.metadata.namespace,
        name=of.metadata.name,
        ready=ready,
        reason=reason,
        message=message,
        stalled=stalled is not None and stalled.status == "True",
        paused=paused(of),
        deleting=of.deleting,
        phase=of.status.phase,
        replicas=getattr(of.spec, "replicas", 0),
        ready_replicas=getattr(of.status, "ready_replicas", 0),
        details=details(of),
        conditions=[each for each in _unsatisfied(of) if ready != "True" or _is_reported_when_ready(each)],
        pods=[_pod(pod) for pod in pods or () if _selects(getattr(of.status, "selector", ""), pod, of)],
        children=[],
    )


def _readiness(of: CoderObject) -> tuple[str, str, str]:
    """Return status, reason and message of `Ready`; Unknown if the condition is of an older generation."""
    ready = find(of.status.conditions, CommonCondition.READY)
    if of.deleting and paused(of):
        return "False", "DeletionPaused", "Deletion waits because the object is paused; run `kubectl coder resume`"
    if of.deleting:
        return "False", "Deleting", "Being deleted; finalizers: " + (", ".join(of.metadata.finalizers) or "none")
    if paused(of):
        return "Unknown", "Paused", "No changes are made until you run `kubectl coder resume`"
    if ready is None:
        return "Unknown", "NoStatus", "Not reconciled yet. Is the operator running?"
    if ready.observed_generation < of.metadata.generation:
        return "Unknown", "NotObserved", "The last change is not reconciled yet. Is the operator running?"
    return ready.status, ready.reason, ready.message


def _unsatisfied(of: CoderObject) -> list[UnsatisfiedCondition]:
    return [
        UnsatisfiedCondition(type=each.type, status=each.status, reason=each.reason, message=each.message)
        for each in of.status.conditions
        if each.type not in set(CommonCondition) and each.status != "True" and each.reason not in INTENDED
    ]


def _is_reported_when_ready(condition: UnsatisfiedCondition) -> bool:
    return condition.type in ADVISORY and condition.status == "False"


def _selects(selector: str, pod: Pod, of: CoderObject) -> bool:
    """Return whether a pod belongs to an object, by the selector in its status."""
    wanted = dict(pair.split("=", 1) for pair in selector.split(",") if pair)
    here = pod.metadata.namespace == of.metadata.namespace
    return bool(wanted) and here and wanted.items() <= pod.metadata.labels.items()


def _pod(pod: Pod) -> PodNode:
    status = pod.status
    reason, message = ("", "") if pod.ready else _unready_reason(pod)
    return PodNode(
        name=pod.metadata.name,
        ready=pod.ready,
        phase="Terminating" if pod.deleting else status.phase,
        reason=reason,
        message=message,
        restarts=sum(each.restart_count for each in status.container_statuses),
    )


def _unready_reason(pod: Pod) -> tuple[str, str]:
    """Return reason and message of the first container that does not run, or of the first False condition."""
    for container in pod.status.container_statuses:
        if (waiting := container.state.waiting) is not None:
            return waiting.reason, waiting.message
        if (terminated := container.state.terminated) is not None:
            return terminated.reason, f"exit code {terminated.exit_code}"
    for condition in _in_order(pod.status.conditions):
        if condition.status == "False" and condition.reason:
            return condition.reason, condition.message
    return "", ""


def _in_order(conditions: Iterable[PodCondition]) -> list[PodCondition]:
    """Return conditions with `PodScheduled` first, because it is the cause of the other ones."""
    return sorted(conditions, key=lambda each: each.type != "PodScheduled")
