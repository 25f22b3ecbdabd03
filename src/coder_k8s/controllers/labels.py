"""Labels and annotations of the operator."""

from collections.abc import Mapping
from typing import Any

import msgspec

from coder_k8s.kube.objects import Kind, Manifest, Object

from .names import derived

MANAGER = "coder-k8s"
MANAGED = f"app.kubernetes.io/managed-by={MANAGER}"
"""Selects all objects that this operator creates."""

COMPONENT, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
DIGEST = "coder.com/applied-digest"
PAUSED = "coder.com/paused"
ADOPT = "coder.com/adopt"
PROMOTE = "coder.com/promote"
OPERATOR_VERSION = "coder.com/operator-version"
"""Annotation of the Lease: the version of the operator that holds it."""


def labels(name: str, owner: Object) -> dict[str, str]:
    """Labels of every child of an object; also the pod selector of a Deployment."""
    return {
        COMPONENT: name,
        INSTANCE: derived(owner.metadata.name),
        "app.kubernetes.io/managed-by": MANAGER,
    }


def metadata(kind: Kind[Any], owner: Object, component: str, name: str) -> Manifest:
    """The metadata of a child: labels, and a controller owner reference."""
    return {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": labels(component, owner),
        "ownerReferences": [msgspec.to_builtins(kind.reference(owner))],
    }


def selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def paused(owner: Object) -> bool:
    return owner.metadata.annotations.get(PAUSED) == "true"


def adopts(owner: Object) -> bool:
    """Whether the object may adopt what it did not create and no other object claims."""
    return owner.metadata.annotations.get(ADOPT) == "true"
