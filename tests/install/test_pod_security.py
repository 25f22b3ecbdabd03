"""The operator's pod complies with the restricted Pod Security Standard."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.install.rendering import ROOT, Manifest, objects

Mutation = Callable[[Manifest, Manifest], Any]
"""Changes the spec of a pod, and of its container."""

WEAKENED: dict[str, Mutation] = {
    "runAsNonRoot": lambda pod, _: pod["securityContext"].pop("runAsNonRoot"),
    "runAsUser=0": lambda pod, _: pod["securityContext"].update(runAsUser=0),
    "seccompProfile": lambda pod, _: pod["securityContext"].pop("seccompProfile"),
    "unrestricted capabilities": lambda _, container: container["securityContext"].pop("capabilities"),
    "allowPrivilegeEscalation": lambda _, container: container["securityContext"].pop("allowPrivilegeEscalation"),
    "restricted volume types": lambda pod, _: pod.update(volumes=[{"name": "node", "hostPath": {"path": "/"}}]),
    "host namespaces": lambda pod, _: pod.update(hostNetwork=True),
}


@pytest.fixture(scope="module")
def template() -> Manifest:
    (deployment,) = (
        item for (kind, _), item in objects((ROOT / "install.yaml").read_text()).items() if kind == "Deployment"
    )
    pod: Manifest = deployment["spec"]["template"]
    return pod


@pytest.fixture
def restricted(cluster: ClusterAccess, namespace: str, template: Manifest) -> str:
    """A namespace like the operator's: restricted, and with its ServiceAccount."""
    plain = objects((ROOT / "install.yaml").read_text())
    labels = plain["Namespace", "coder-system"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    cluster.kubectl("label", "namespace", namespace, *(f"{name}={value}" for name, value in labels.items()))
    cluster.kubectl("create", "serviceaccount", template["spec"]["serviceAccountName"], "--namespace", namespace)
    return namespace


def create(cluster: ClusterAccess, namespace: str, template: Manifest) -> tuple[int, str]:
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "operator"}}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    status, answer = cluster.request("POST", path, pod)
    return status, json.loads(answer).get("message", "")


def test_restricted(cluster: ClusterAccess, restricted: str, template: Manifest) -> None:
    assert create(cluster, restricted, template) == (201, "")
    for expected, weaken in WEAKENED.items():
        weak = copy.deepcopy(template)
        weaken(weak["spec"], weak["spec"]["containers"][0])
        status, message = create(cluster, restricted, weak)
        assert (status, expected in message) == (403, True), f"{expected}: {status} {message}"


def test_beyond_restricted(template: Manifest) -> None:
    """Settings that no Pod Security Standard requires."""
    spec = template["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not spec.get("volumes")
    assert spec["securityContext"]["runAsUser"] > 1000
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    assert spec["terminationGracePeriodSeconds"] > 32, "longer than the longest shutdown"
