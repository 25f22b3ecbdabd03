"""The Go operator's children equal those of this operator, so that adopting them restarts nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderControlPlane
from coder_k8s.controllers.controlplane.deployment import PodInputs, deployment, volume_name
from coder_k8s.controllers.controlplane.objects import ingress, service, service_account
from coder_k8s.controllers.controlplane.rbac import ROLES
from coder_k8s.kube.objects import Manifest, key_of
from tests.support.takeover import recorded, set_by

RECORDED = recorded(Path(__file__).with_name("takeover.json"))
PLANE = "CoderControlPlane"
PLANES = [item for item in RECORDED if item["kind"] == "CoderControlPlane"]

DEFAULTS: dict[str, Any] = {
    "progressDeadlineSeconds": 600,
    "revisionHistoryLimit": 10,
    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
    "scheme": "HTTP",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "defaultMode": 0o644,
    "externalTrafficPolicy": "Cluster",
    "internalTrafficPolicy": "Cluster",
    "sessionAffinity": "None",
    "allocateLoadBalancerNodePorts": True,
}
"""Fields that the API server defaults, and records for the manager that created the object."""

QUANTITIES = {"2000m": "2", "4096Mi": "4Gi"}
"""Quantities as the API server normalizes them."""

COPIES = {"serviceAccount"}
"""Deprecated field names, which the API server keeps equal to the current ones."""


def meaning(value: Any) -> Any:
    """A manifest without defaults and zero values, with normalized quantities."""
    if isinstance(value, dict):
        inner = {name: meaning(item) for name, item in value.items()}
        return {name: item for name, item in inner.items() if not _implied(name, item)}
    if isinstance(value, list):
        return [meaning(item) for item in value]
    return QUANTITIES.get(value, value)


def _implied(name: str, value: Any) -> bool:
    return not value or name in COPIES or value == DEFAULTS.get(name)


def built(of: Manifest) -> Iterator[tuple[str, Manifest]]:
    """The children that this operator builds for a control plane, by kind."""
    plane = msgspec.convert(of, CoderControlPlane)
    spec = plane.spec
    # The sources of environment variables did not exist when this was recorded.
    inject = spec.env_use_cluster_access_url and not spec.env_from
    live = next(item["spec"]["template"] for kind, item in adopted(of) if kind == "Deployment")
    yield "Deployment", deployment(plane, PodInputs(inject, live=live))
    yield "Service", service(plane)
    if not spec.service_account.disable_create:
        yield "ServiceAccount", service_account(plane)
    if spec.rbac.workspace_perms:
        for namespace in (plane.metadata.namespace, *spec.rbac.workspace_namespaces):
            yield "Role", ROLES.role(plane, namespace)
            yield "RoleBinding", ROLES.role_binding(plane, namespace)
    if spec.expose and spec.expose.ingress:
        yield "Ingress", ingress(plane, spec.expose.ingress)


def adopted(of: Manifest) -> Iterator[tuple[str, Manifest]]:
    uid = of["metadata"]["uid"]
    for item in RECORDED:
        if item["kind"] not in ("CoderControlPlane", "Secret") and uid in json.dumps(item):
            yield item["kind"], item


@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane["metadata"]["name"])
def test_same_objects(plane: Manifest) -> None:
    """In every field that the Go operator set, and in no other."""
    expected = {(kind, key_of(item)): meaning(set_by("coder-k8s", item)) for kind, item in adopted(plane)}
    made = {(kind, key_of(item)): meaning(_body(item)) for kind, item in built(plane)}
    assert expected
    assert made == expected


@pytest.mark.parametrize(
    "renamed",
    [
        pytest.param({"ca-two-a.pem.crt": "ca-two-a.crt", "a.pem": "a.crt"}, id="key"),
        pytest.param({'"ca-one"': '"ca-one.crt"', "ca-cert-ca-one": volume_name("ca-cert", "ca-one.crt")}, id="Secret"),
    ],
)
def test_same_files_for_certificates_that_are_called_crt(renamed: dict[str, str]) -> None:
    """The record with other names, by the rule of the Go operator."""
    text = json.dumps(
        [item for item in RECORDED if item["metadata"]["name"] == "tls" and item["kind"] in ("Deployment", PLANE)]
    )
    for old, new in renamed.items():
        assert old in text
        text = text.replace(old, new)
    plane, adopted = json.loads(text)
    live = adopted["spec"]["template"]
    made = deployment(msgspec.convert(plane, CoderControlPlane), PodInputs(live=live))
    assert meaning(_body(made)) == meaning(set_by("coder-k8s", adopted))


def _body(manifest: Manifest) -> Manifest:
    """A manifest without its name and managed fields."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in ("name", "namespace")}
    return {**manifest, "metadata": metadata}
