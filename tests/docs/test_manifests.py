"""The API server accepts the manifests of the documentation and of examples/ with strict validation."""

import json
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess, KubectlFailed
from tests.docs.pages import ROOT, blocks, pages
from tests.support.manifests import parse_all

OTHER_KINDS = {
    "Application": "Argo CD",
    "Cluster": "CloudNativePG",
    "Gateway": "Gateway API; test_commands applies it",
    "GitRepository": "Flux",
    "Kustomization": "Flux, or a kustomize file",
}
"""Kinds that the shared cluster does not serve."""
GITOPS = {
    "flux.yaml": "flux/kustomizations.yaml",
    "argocd-cm.yaml": "argocd/health.yaml",
    "application.yaml": "argocd/application.yaml",
}
REFERENCE = {"controlPlaneRef": {"name": "coder"}}
BASES: dict[str, Any] = {
    "CoderControlPlane": {},
    "CoderProvisioner": REFERENCE,
    "CoderWorkspaceProxy": REFERENCE,
    "CoderTemplate": {**REFERENCE, "source": {"inline": {"files": {"main.tf": ""}}}},
}
"""A minimal spec of each kind."""


def known(documents: list[Any]) -> list[Any]:
    """Return the objects whose kind the API server has."""
    return [each for each in documents if each and "kind" in each and each["kind"] not in OTHER_KINDS]


EXAMPLES = [path for path in sorted((ROOT / "examples").rglob("*.yaml")) if known(list(parse_all(path.read_text())))]


def apply(cluster: ClusterAccess, namespace: str, documents: list[Any], *flags: str) -> None:
    """Apply objects to a namespace with strict validation."""
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
            each["metadata"]["name"] = f"{block.page.stem.lower()}-{block.line}-{number}"  # shown in an error
            written.append(each)
    apply(cluster, namespace, written, "--dry-run=server")


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_examples(cluster: ClusterAccess, namespace: str, example: Path) -> None:
    """They are applied, except for namespaces, which are visible to other tests."""
    found = known(list(parse_all(example.read_text())))
    apply(cluster, namespace, [each for each in found if each["kind"] != "Namespace"])


def test_gitops_examples_equal_those_of_the_page() -> None:
    """The page contains the complete files."""
    texts = {block.title: block.text for block in blocks(ROOT / "docs" / "how-to" / "gitops.md")}
    for title, name in GITOPS.items():
        assert (ROOT / "examples" / name).read_text() == texts[title]


@pytest.mark.usefixtures("crds")
def test_fragments_of_pages(cluster: ClusterAccess, namespace: str) -> None:
    """A part of a spec is valid for one of the kinds. One with a title is tested by a command of its page."""
    for block in (block for page in pages() for block in blocks(page) if block.language == "yaml"):
        for fragment in (each for each in block.documents if "kind" not in each):
            assert fragment.keys() == {"spec"}, f"{block}: neither an object nor a part of a spec"
            if not block.title:
                errors = [rejected(cluster, namespace, kind, fragment["spec"]) for kind in BASES]
                assert "" in errors, f"{block}: {errors}"


def rejected(cluster: ClusterAccess, namespace: str, kind: str, spec: Any) -> str:
    """Return the error of the API server for a part of a spec, or an empty text."""
    complete = {
        "apiVersion": "coder.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": "fragment"},
        "spec": {**BASES[kind], **spec},
    }
    try:
        apply(cluster, namespace, [complete], "--dry-run=server")
    except KubectlFailed as error:
        return str(error)
    return ""
