"""Users of a cluster with limited permissions."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics

OWNERS = {
    "apiGroups": ["coder.com"],
    "resources": ["codercontrolplanes", "coderprovisioners"],
    "verbs": ["get", "create", "update", "patch", "delete"],
}


def rule(resources: str, verbs: str, group: str = "", names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A rule of a Role; resources and verbs are separated by spaces."""
    made: dict[str, Any] = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return made | ({"resourceNames": list(names)} if names else {})


def create_user(cluster: ClusterAccess, name: str, namespace: str, rights: dict[str, list[dict[str, Any]]]) -> Path:
    """A kubeconfig of a user who can write `OWNERS` in a namespace, with more rules by namespace."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    post(cluster, account, {"metadata": {"name": name}})
    for place, rules in {namespace: [], **rights}.items():
        _grant(cluster, place, {"kind": "ServiceAccount", "name": name, "namespace": namespace}, [OWNERS, *rules])
    token = post(cluster, f"{account}/{name}/token", {"spec": {}})["status"]["token"]
    return cluster.write_kubeconfig(cluster.folder / f"{name}-{namespace}.kubeconfig", {"token": token}, namespace)


def post(cluster: ClusterAccess, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object and return it."""
    status, answer = cluster.request("POST", path, body)
    assert status == HTTPStatus.CREATED, answer
    made: dict[str, Any] = json.loads(answer)
    return made


def _grant(cluster: ClusterAccess, place: str, subject: dict[str, str], rules: list[dict[str, Any]]) -> None:
    metadata = {"name": f"{subject['name']}-{subject['namespace']}"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place}"
    post(cluster, f"{root}/roles", {"metadata": metadata, "rules": rules})
    post(cluster, f"{root}/rolebindings", binding)


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[Client]:
    async with Http(load(kubeconfig), "test", Metrics()) as http:
        yield Client(http, "test")
