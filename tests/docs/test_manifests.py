"""Manifests of the documentation and of examples/ are what the API server takes, to the last field."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from coder_k8s.dev.cluster import ClusterAccess, KubectlFailed
from tests.docs.pages import ROOT, blocks, pages

FOREIGN = {
    "Application": "of Argo CD",
    "Cluster": "of CloudNativePG",
    "Gateway": "of the Gateway API; test_commands applies it",
    "Kustomization": "of Flux, or a file of kustomize",
}
"""Kinds that the shared cluster does not serve."""
GITOPS = {
    "flux.yaml": "flux/kustomizations.yaml",
    "argocd-cm.yaml": "argocd/health.yaml",
    "application.yaml": "argocd/application.yaml",
}
REFERENCE = {"controlPlaneRef": {"name": "coder"}}
BASES: dict[str, Any] = {"CoderControlPlane": {}, "CoderProvisioner": REFERENCE, "CoderWorkspaceProxy": REFERENCE}
"""The least that a spec of each kind says."""


def known(documents: list[Any]) -> list[Any]:
    """The objects that the API server has a kind for."""
    return [each for each in documents if each and "kind" in each and each["kind"] not in FOREIGN]


EXAMPLES = [
    path for path in sorted((ROOT / "examples").rglob("*.yaml")) if known(list(yaml.safe_load_all(path.read_text())))
]


def apply(cluster: ClusterAccess, namespace: str, documents: list[Any], *flags: str) -> None:
    """Apply objects with strict validation, to a namespace that exists."""
    for each in documents:
        if each["kind"] != "Namespace":
            each["metadata"]["namespace"] = namespace
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    cluster.kubectl("apply", "--server-side", "--validate=strict", *flags, "--filename=-", input=listed)


@pytest.mark.usefixtures("crds")
def test_manifests_of_pages(cluster: ClusterAccess, namespace: str) -> None:
    written = []
    for block in (block for page in pages() for block in blocks(page) if block.language == "yaml"):
        for number, each in enumerate(known(block.documents)):
            each["metadata"]["name"] = (
                f"{block.page.stem.lower()}-{block.line}-{number}"  # so that a refusal tells where
            )
            written.append(each)
    apply(cluster, namespace, written, "--dry-run=server")


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_examples(cluster: ClusterAccess, namespace: str, example: Path) -> None:
    """They are applied, but for namespaces, which other tests would see."""
    found = known(list(yaml.safe_load_all(example.read_text())))
    apply(cluster, namespace, [each for each in found if each["kind"] != "Namespace"])


def test_examples_of_gitops_are_those_of_the_page() -> None:
    """The page has them in full, since nobody copies a link."""
    texts = {block.title: block.text for block in blocks(ROOT / "docs" / "how-to" / "gitops.md")}
    for title, name in GITOPS.items():
        assert (ROOT / "examples" / name).read_text() == texts[title]


@pytest.mark.usefixtures("crds")
def test_fragments_of_pages(cluster: ClusterAccess, namespace: str) -> None:
    """A part of a spec is one of some kind of ours; with a title, a command of the page shows it."""
    for block in (block for page in pages() for block in blocks(page) if block.language == "yaml"):
        for fragment in (each for each in block.documents if "kind" not in each):
            assert fragment.keys() == {"spec"}, f"{block}: neither an object nor a part of one"
            if not block.title:
                refusals = [refused(cluster, namespace, kind, fragment["spec"]) for kind in BASES]
                assert "" in refusals, f"{block}: {refusals}"


def refused(cluster: ClusterAccess, namespace: str, kind: str, spec: Any) -> str:
    """Why the API server does not take a part of a spec; empty if it does."""
    whole = {
        "apiVersion": "coder.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": "fragment"},
        "spec": {**BASES[kind], **spec},
    }
    try:
        apply(cluster, namespace, [whole], "--dry-run=server")
    except KubectlFailed as refusal:
        return str(refusal)
    return ""
