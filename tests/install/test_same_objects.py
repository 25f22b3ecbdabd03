"""All installation methods create the same objects."""

from pathlib import Path

import pytest
import yaml

from tests.install.rendering import NAMESPACE, ROOT, Helm, Objects, kustomized, objects, without_helm_metadata

CONFIG = ROOT / "config"
NAMESPACE_ITSELF = ("Namespace", NAMESPACE)
IMAGE = {"name": "coder-k8s", "newName": "registry.example.com/coder-k8s", "newTag": "1.2.3"}
MONITORED = {"metrics": {"serviceMonitor": {"enabled": True}}, "prometheusRule": {"enabled": True}}


@pytest.fixture(scope="module")
def plain() -> Objects:
    return objects((ROOT / "install.yaml").read_text())


def test_kustomize_and_the_plain_file(plain: Objects) -> None:
    assert kustomized(CONFIG / "default") == plain


def test_the_chart_and_the_plain_file(helm: Helm, plain: Objects) -> None:
    """Helm creates the namespace itself, with `--create-namespace`."""
    assert without_helm_metadata(helm.template()) | {NAMESPACE_ITSELF: plain[NAMESPACE_ITSELF]} == plain


def test_monitoring(helm: Helm) -> None:
    with_and_without = helm.template(MONITORED), helm.template()
    added = {name: item for name, item in with_and_without[0].items() if name not in with_and_without[1]}
    assert without_helm_metadata(added) == kustomized(CONFIG / "monitoring")


def test_the_number_of_objects_of_each_kind(plain: Objects) -> None:
    kinds = [kind for kind, _ in plain]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "Namespace": 1,
        "CustomResourceDefinition": 4,
        "ServiceAccount": 1,
        "ClusterRole": 3,
        "ClusterRoleBinding": 1,
        "Role": 1,
        "RoleBinding": 1,
        "ValidatingAdmissionPolicy": 8,
        "ValidatingAdmissionPolicyBinding": 8,
        "Deployment": 1,
        "Service": 1,
        "PodDisruptionBudget": 1,
    }


def test_an_overlay_changes_the_namespace_of_all_objects(tmp_path: Path, plain: Objects) -> None:
    """Kustomize also changes the subjects of bindings."""
    (tmp_path / "install.yaml").write_text((ROOT / "install.yaml").read_text())
    overlay = {"resources": ["install.yaml"], "namespace": "elsewhere", "images": [IMAGE]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    moved = kustomized(tmp_path)
    assert len(moved) == len(plain)
    assert NAMESPACE not in yaml.safe_dump_all(moved.values())
    (container,) = moved["Deployment", "elsewhere/coder-k8s"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/coder-k8s:1.2.3"


def test_helm_lint(helm: Helm) -> None:
    output = helm.run("lint", "--strict", ROOT / "charts" / "coder-k8s")
    assert "0 chart(s) failed" in output
