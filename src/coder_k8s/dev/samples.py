"""The sample objects of `coder-k8s dev`: one of each kind, and the Secrets that they reference."""

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.controllers.secrets import encoded
from coder_k8s.kube.objects import Key, Kind, Manifest, Object

NAMESPACE = "coder"
PLANE = Key(NAMESPACE, "coder")
PROVISIONED = Key(NAMESPACE, "gpu")
PROXY = Key(NAMESPACE, "sydney")
DATABASE = Key(NAMESPACE, "coder-database")
LICENSE = Key(NAMESPACE, "coder-license")
IMAGE = "ghcr.io/coder/coder:v2.36.1"

Samples = list[tuple[Kind[Object], Manifest]]


def database(url: str) -> Manifest:
    return _secret(DATABASE, url=url)


def license(jwt: str) -> Manifest:
    return _secret(LICENSE, license=jwt)


def unlicensed(image: str) -> Samples:
    """Return a control plane."""
    return [(CONTROL_PLANE, {**_named(PLANE), "spec": _plane(image)})]


def licensed() -> Samples:
    """Return a control plane with a license, a provisioner and a proxy."""
    reference = {"controlPlaneRef": {"name": PLANE.name}}
    return [
        (CONTROL_PLANE, {**_named(PLANE), "spec": {**_plane(IMAGE), "licenseSecretRef": {"name": LICENSE.name}}}),
        (PROVISIONER, {**_named(PROVISIONED), "spec": {**reference, "replicas": 3, "tags": {"hardware": "gpu"}}}),
        (WORKSPACE_PROXY, {**_named(PROXY), "spec": {**reference, "replicas": 2}}),
    ]


def _plane(image: str) -> Manifest:
    url = {"secretKeyRef": {"name": DATABASE.name, "key": "url"}}
    return {
        "image": image,
        "replicas": 2,
        "extraEnv": [{"name": "CODER_PG_CONNECTION_URL", "valueFrom": url}],
    }


def _named(key: Key) -> Manifest:
    return {"metadata": {"namespace": key.namespace, "name": key.name}}


def _secret(key: Key, **values: str) -> Manifest:
    return {**_named(key), "data": {name: encoded(value) for name, value in values.items()}}
