"""Helm takes over an existing installation with the commands of the documentation."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from coder_k8s.dev.binaries import program
from coder_k8s.dev.cluster import Cluster
from tests.docs.pages import DOCS, Block, blocks
from tests.install.rendering import CHART, IMAGE, NAMESPACE, RELEASE, ROOT, Helm, HelmFailed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HELM_REFUSES = "cannot be imported into the current release"
OBJECT = {
    "apiVersion": "coder.com/v1alpha1",
    "kind": "CoderControlPlane",
    "metadata": {"name": "coder", "namespace": NAMESPACE},
}
GO_OPERATOR = (
    ("serviceaccount", "coder-k8s", "--namespace", NAMESPACE),
    ("deployment", "coder-k8s", "--namespace", NAMESPACE, "--image=coder-k8s-go"),
    ("clusterrole", "coder-k8s", "--verb=get", "--resource=pods"),
    ("clusterrolebinding", "coder-k8s", "--clusterrole=coder-k8s", f"--serviceaccount={NAMESPACE}:coder-k8s"),
)
"""Objects with the names of a release; the Deployment has another selector."""


@pytest.fixture
def place(fresh_cluster: Cluster) -> Cluster:
    """A cluster with a control plane, and CRDs that Helm did not install."""
    fresh_cluster.kubectl("apply", "--server-side", "--kustomize", ROOT / "config" / "crd")
    fresh_cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
    fresh_cluster.kubectl("create", "namespace", NAMESPACE)
    fresh_cluster.kubectl("create", "--filename=-", input=yaml.safe_dump(OBJECT))
    return fresh_cluster


@pytest.fixture
def cluster_helm(place: Cluster, tmp_path: Path) -> Helm:
    return Helm(tmp_path, place.kubeconfig)


def excused(page: Path) -> list[Block]:
    """The commands of a page that take over an installation."""
    found = [block for block in blocks(page) if block.excuse == "takeover"]
    assert found
    return found


def run(helm: Helm, block: Block) -> None:
    path = os.pathsep.join([*{str(Path(program(name)).parent) for name in ("helm", "kubectl")}, os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=ROOT,
        env=helm.environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


def uid(cluster: Cluster, *what: str) -> str:
    return cluster.kubectl("get", *what, "--namespace", NAMESPACE, "--output=jsonpath={.metadata.uid}")


def owners(cluster: Cluster) -> set[str]:
    """The releases that own the CRDs."""
    jsonpath = r"{.items[*].metadata.annotations.meta\.helm\.sh/release-name}"
    selector = "--selector=app.kubernetes.io/name=coder-k8s"
    return set(cluster.kubectl("get", "crd", selector, f"--output=jsonpath={jsonpath}").split())


def test_helm_takes_over_an_installation_of_the_go_operator_and_kept_crds(place: Cluster, cluster_helm: Helm) -> None:
    for each in GO_OPERATOR:
        place.kubectl("create", *each)
    before = uid(place, "codercontrolplane", "coder")
    with pytest.raises(HelmFailed, match=HELM_REFUSES):
        cluster_helm.run("install", RELEASE, CHART, "--namespace", NAMESPACE, values=IMAGE)
    for block in excused(DOCS / "how-to" / "migrate-from-go-operator.md"):
        run(cluster_helm, block)
    assert uid(place, "codercontrolplane", "coder") == before
    assert owners(place) == {RELEASE}
    deployment = yaml.safe_load(place.kubectl("get", "deployment", RELEASE, "--namespace", NAMESPACE, "--output=yaml"))
    assert [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]] == [
        "registry.example.com/coder-k8s:0.1.0"
    ]
    role = yaml.safe_load(place.kubectl("get", "clusterrole", RELEASE, "--output=yaml"))
    assert role["rules"] == yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["cluster"]
    there = ("--namespace", NAMESPACE)
    cluster_helm.run("upgrade", RELEASE, CHART, *there, "--reset-then-reuse-values")

    # Another release takes over the CRDs that this one keeps.
    cluster_helm.run("uninstall", RELEASE, *there)
    with pytest.raises(HelmFailed, match=HELM_REFUSES):
        cluster_helm.run("install", "coder-operator", CHART, *there, values=IMAGE)
    for block in excused(DOCS / "how-to" / "upgrade.md"):
        run(cluster_helm, block)
    assert uid(place, "codercontrolplane", "coder") == before
    assert owners(place) == {"coder-operator"}
    cluster_helm.run("upgrade", "coder-operator", CHART, *there, "--reset-then-reuse-values")
