"""The operator's kinds, roles and identity in a cluster, made from the same source as the files of `config/`."""

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

LONGER_THAN_ANY_RUN = 365 * 24 * 3600


def install_crds(cluster: ClusterAccess, resources: Sequence[Resource] = RESOURCES) -> None:
    """The custom resource definitions, served when this returns."""
    definitions = embedded.load()
    apply(cluster, [crd.definition(resource, definitions) for resource in resources])
    paths = [f"/apis/{resource.kind.api_version}/{resource.kind.plural}?limit=1" for resource in resources]
    # Established is not enough: for a moment after it the API server answers 429, as storage is still prepared.
    if not poll(lambda: all(cluster.request("GET", path)[0] == HTTPStatus.OK for path in paths), timeout=60):
        raise ProcessFailed("the API server does not serve the custom resource definitions")


def install_operator(cluster: ClusterAccess, kubeconfig: Path) -> None:
    """The operator's ServiceAccount and roles, and a kubeconfig by which a process is that and nothing more."""
    apply(cluster, [namespace(rbac.NAMESPACE)])
    files = rbac.manifests(rbac.declared())
    apply(cluster, [item for name, items in files if not name.startswith("namespaced/") for item in items])
    account = f"/api/v1/namespaces/{rbac.NAMESPACE}/serviceaccounts/{rbac.NAME}/token"
    status, body = cluster.request("POST", account, {"spec": {"expirationSeconds": LONGER_THAN_ANY_RUN}})
    if status != HTTPStatus.CREATED:
        raise ProcessFailed(f"the API server answered {status} to a request for a token: {body.decode()}")
    cluster.write_kubeconfig(kubeconfig, {"token": json.loads(body)["status"]["token"]}, rbac.NAMESPACE)


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def apply(cluster: ClusterAccess, objects: Iterable[Manifest]) -> None:
    """Bring objects to the cluster, whether they are there or not."""
    for item in objects:
        path = f"{_path(item)}?fieldManager=coder-k8s-dev&force=true"
        status, body = cluster.request("PATCH", path, item, timeout=60, content_type="application/apply-patch+yaml")
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise ProcessFailed(f"the API server answered {status} to {path}: {body.decode()}")


def _path(item: Manifest) -> str:
    """Where the API server has an object; the kinds that come here have no irregular plural."""
    api, metadata = item["apiVersion"], item["metadata"]
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/{'apis' if '/' in api else 'api'}/{api}{place}/{item['kind'].lower()}s/{metadata['name']}"
