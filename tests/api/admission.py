"""Submits objects to the API server."""

import json
from copy import deepcopy
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, TEMPLATE, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Key, Kind, Manifest, Object

KINDS = {resource.kind.name: resource.kind for resource in RESOURCES}

MINIMAL: dict[str, Manifest] = {
    CONTROL_PLANE.name: {},
    PROVISIONER.name: {"spec": {"controlPlaneRef": {"name": "coder"}}},
    WORKSPACE_PROXY.name: {"spec": {"controlPlaneRef": {"name": "coder"}}},
    TEMPLATE.name: {"spec": {"controlPlaneRef": {"name": "coder"}, "source": {"configMapRef": {"name": "files"}}}},
}
POD_FIELDS: dict[str, str | list[str]] = {
    "affinity": "Affinity",
    "extraEnv": ["EnvVar"],
    "imagePullSecrets": ["LocalObjectReference"],
    "podSecurityContext": "PodSecurityContext",
    "resources": "ResourceRequirements",
    "securityContext": "SecurityContext",
    "tolerations": ["Toleration"],
    "volumeMounts": ["VolumeMount"],
    "volumes": ["Volume"],
}
EMBEDDED: list[tuple[Kind[Object], str, str | list[str]]] = [
    *((each.kind, field, core) for each in RESOURCES if each.has_pods for field, core in POD_FIELDS.items()),
    (CONTROL_PLANE, "envFrom", ["EnvFromSource"]),
    (CONTROL_PLANE, "topologySpreadConstraints", ["TopologySpreadConstraint"]),
    (CONTROL_PLANE, "rbac.extraRules", ["PolicyRule"]),
]


def minimal(kind: Kind[Object], name: str = "minimal") -> Manifest:
    """A minimal valid object."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name},
        **deepcopy(MINIMAL[kind.name]),
    }


def altered(manifest: Manifest, path: str, value: Any) -> Manifest:
    """The same object with one field set, or removed if the value is `None`."""
    changed = deepcopy(manifest)
    *parents, last = path.split(".")
    inner = changed
    for parent in parents:
        inner = inner.setdefault(parent, {})
    if value is None:
        inner.pop(last, None)
    else:
        inner[last] = value
    return changed


def submit(cluster: ClusterAccess, namespace: str, manifest: Manifest, *, keep: bool = True) -> tuple[int, Any]:
    """Create an object; return the status and body of the response. An unknown field is an error."""
    path = KINDS[manifest["kind"]].path(Key(namespace, ""))
    dry_run = "" if keep else "&dryRun=All"
    status, body = cluster.request("POST", f"{path}?fieldValidation=Strict{dry_run}", manifest)
    return status, json.loads(body)
