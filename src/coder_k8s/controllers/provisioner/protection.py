"""Annotations and labels that protect pods with a running build.

| key | value | effect | `protectBusyPods` |
|---|---|---|---|
| `controller.kubernetes.io/pod-deletion-cost` | 10 | idle pods are removed first when there are fewer replicas | any |
| `cluster-autoscaler.kubernetes.io/safe-to-evict` | false | the node is not removed | `Annotations`, `Budget` |
| `karpenter.sh/do-not-disrupt` | true | the node is not removed | `Annotations`, `Budget` |
| label `coder.com/busy` | true | a PodDisruptionBudget selects the pod | `Budget` |

A pod gets them when its build starts and loses them when it ends, each with one patch and without a restart. The
annotation `coder.com/protected-by` names those that the operator set: one that a user set is never changed, and one
whose value a user changed is left alone.
"""

from collections.abc import Mapping

import msgspec

from coder_k8s.api.autoscaling import Disruption
from coder_k8s.kube.objects import Manifest, Unstructured

COST = "controller.kubernetes.io/pod-deletion-cost"
BUSY_COST = "10"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
BUSY = "coder.com/busy"
MARKER = "coder.com/protected-by"

VALUES = {COST: BUSY_COST, SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true"}
ANNOTATIONS = {
    "None": (COST,),
    "Annotations": (COST, SAFE_TO_EVICT, DO_NOT_DISRUPT),
    "Budget": (COST, SAFE_TO_EVICT, DO_NOT_DISRUPT),
}


class Protection(msgspec.Struct, frozen=True):
    """The change of a pod's metadata."""

    metadata: Manifest
    """A merge patch; empty if nothing changes."""
    raises: bool
    """Whether the pod becomes more costly to remove."""


def protect(pod: Unstructured, *, busy: bool, disruption: Disruption | None) -> Protection:
    """How the metadata of a pod changes; without `disruption` it loses what the operator set."""
    mode = disruption.protect_busy_pods if disruption else "None"
    wanted = ANNOTATIONS[mode] if busy and disruption else ()
    before = pod.metadata.annotations
    own = _own(before)
    annotations: dict[str, str | None] = {
        name: None for name in own if name not in wanted and _is_unchanged(before, name)
    }
    added = [name for name in wanted if name not in before]
    annotations |= {name: VALUES[name] for name in added}
    kept = sorted({name for name in own if name in wanted} | set(added))
    marker = ",".join(kept)
    if marker != before.get(MARKER, ""):
        annotations[MARKER] = marker or None
    labels = _labels(pod.metadata.labels, busy=busy and mode == "Budget")
    patch = {name: value for name, value in (("annotations", annotations), ("labels", labels)) if value}
    return Protection(patch, COST in added)


def cost_of(pod: Unstructured) -> int:
    """The deletion cost of a pod; 0 if it has none that Kubernetes accepts."""
    try:
        return int(pod.metadata.annotations.get(COST, "0"))
    except ValueError:
        return 0


def is_protected(pod: Unstructured) -> bool:
    """Whether the operator set something on the pod."""
    return MARKER in pod.metadata.annotations or BUSY in pod.metadata.labels


def _own(annotations: Mapping[str, str]) -> list[str]:
    return [name for name in annotations.get(MARKER, "").split(",") if name in VALUES]


def _is_unchanged(annotations: Mapping[str, str], name: str) -> bool:
    return annotations.get(name) == VALUES[name]


def _labels(labels: Mapping[str, str], *, busy: bool) -> dict[str, str | None]:
    if busy == (labels.get(BUSY) == "true"):
        return {}
    return {BUSY: "true" if busy else None}
