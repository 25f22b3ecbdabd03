"""Installs the CRDs, roles and ServiceAccount of the operator, from the same source as the files in `config/`."""

import json
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path

from coder_k8s.api import RESOURCES
from coder_k8s.api.markers import Resource
from coder_k8s.kube.objects import Manifest
from coder_k8s.manifests import crd, embedded, rbac

from .cluster import ClusterAccess
from .processes import ProcessFailed, poll

TOKEN_SECONDS = 365 * 24 * 3600


def install_crds(cluster: ClusterAccess, resources: Sequence[Resource] = RESOURCES) -> None:
    """Install the CRDs, and wait until the API server serves them."""
    definitions = embedded.load()
    apply(cluster, [crd.definition(resource, definitions) for resource in resources])
    paths = [f"/apis/{resource.kind.api_version}/{resource.kind.plural}?limit=1" for resource in resources]
    # Established is not sufficient: the API server can respond with 429 until the storage is ready.
    if not poll(lambda: all(cluster.request("GET", path)[0] == HTTPStatus.OK for path in paths), timeout=60):
        raise ProcessFailed("the API server does not serve the CRDs")


def install_operator(cluster: ClusterAccess, kubeconfig: Path) -> None:
    """Install the operator's ServiceAccount and roles, and write a kubeconfig for this ServiceAccount."""
    apply(cluster, [namespace(rbac.NAMESPACE)])
    files = rbac.manifests(rbac.declared())
    apply(cluster, [item for name, items in files if not name.startswith("namespaced/") for item in items])
    account = f"/api/v1/namespaces/{rbac.NAMESPACE}/serviceaccounts/{rbac.NAME}/token"
    status, body = cluster.request("POST", account, {"spec": {"expirationSeconds": TOKEN_SECONDS}})
    if status != HTTPStatus.CREATED:
        raise ProcessFailed(f"the API server responded with {status} to a token request: {body.decode()}")
    cluster.write_kubeconfig(kubeconfig, {"token": json.loads(body)["status"]["token"]}, rbac.NAMESPACE)


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def apply(cluster: ClusterAccess, objects: Iterable[Manifest]) -> None:
    """Apply objects with server-side apply."""
    for item in objects:
        path = f"{_path(item)}?fieldManager=coder-k8s-dev&force=true"
        status, body = cluster.request("PATCH", path, item, timeout=60, content_type="application/apply-patch+yaml")
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise ProcessFailed(f"the API server responded with {status} to {path}: {body.decode()}")


def _path(item: Manifest) -> str:
    """Return the path of an object. The kinds used here have regular plurals."""
    api, metadata = item["apiVersion"], item["metadata"]
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/{'apis' if '/' in api else 'api'}/{api}{place}/{item['kind'].lower()}s/{metadata['name']}"
