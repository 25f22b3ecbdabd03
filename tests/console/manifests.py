"""Manifests with a status, and functions to create them in a cluster."""

import json
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, TEMPLATE, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Key, Kind, Manifest

SINCE = "2026-01-01T00:00:00Z"
READY = ("Ready", "True", "AllReady", "")


def condition(type: str, status: str, reason: str, message: str = "") -> Manifest:  # noqa: A002 - Kubernetes' word
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
        "observedGeneration": 1,
    }


def with_conditions(*conditions: tuple[str, str, str, str], **fields: Any) -> Manifest:
    """Return a status with conditions."""
    return {"observedGeneration": 1, "conditions": [condition(*each) for each in conditions], **fields}


def made(
    kind: Kind[Any], name: str, spec: Manifest | None = None, status: Manifest | None = None, **metadata: Any
) -> Manifest:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "namespace": "coder", "uid": name, "generation": 1, **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def plane(name: str, status: Manifest | None = None, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    return made(CONTROL_PLANE, name, spec, status, **metadata)


def provisioner(
    name: str, of: str, status: Manifest | None = None, spec: Manifest | None = None, **metadata: Any
) -> Manifest:
    return made(PROVISIONER, name, {"controlPlaneRef": {"name": of}, **(spec or {})}, status, **metadata)


def proxy(name: str, spec: Manifest, status: Manifest | None = None, **metadata: Any) -> Manifest:
    return made(WORKSPACE_PROXY, name, spec, status, **metadata)


def template(name: str, of: str, spec: Manifest, status: Manifest | None = None, **metadata: Any) -> Manifest:
    return made(TEMPLATE, name, {"controlPlaneRef": {"name": of}, **spec}, status, **metadata)


def pod(name: str, status: Manifest, labels: dict[str, str], **metadata: Any) -> Manifest:
    spec = {"containers": [{"name": "coder", "image": "coder"}]}
    return made(POD, name, spec, status, labels=labels, **metadata)


def labels(name: str, instance: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/managed-by": "coder-k8s",
    }


def selector(of: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(of.items()))


RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def put(cluster: ClusterAccess, kind: Kind[Any], namespace: str, manifest: Manifest) -> Manifest:
    """Create an object with its status."""
    metadata = {**manifest["metadata"], "namespace": namespace}
    del metadata["uid"], metadata["generation"]
    made = _send(cluster, "POST", kind.path(Key(namespace, "")), {**manifest, "metadata": metadata})
    if not manifest.get("status"):
        return made
    path = kind.path(Key(namespace, metadata["name"]), "status")
    return _send(cluster, "PUT", path, {**made, "status": manifest["status"]})


def get(cluster: ClusterAccess, kind: Kind[Any], namespace: str, name: str) -> Manifest:
    return _send(cluster, "GET", kind.path(Key(namespace, name)))


def _send(cluster: ClusterAccess, method: str, path: str, body: object = None) -> Manifest:
    status, answer = cluster.request(method, path, body)
    assert status in (200, 201), answer
    manifest: Manifest = json.loads(answer)
    return manifest
