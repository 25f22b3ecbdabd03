"""Renders the objects of each installation method."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from coder_k8s.dev.binaries import program

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "coder-k8s"
RELEASE = "coder-k8s"
NAMESPACE = "coder-system"
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy")

Manifest = dict[str, Any]
DEFAULTS: Manifest = yaml.safe_load((CHART / "values.yaml").read_text())
IMAGE: Manifest = {"image": {"repository": "coder-k8s"}}
"""The only value without a default."""
SMALL: Manifest = {"crds": {"install": False}, "admissionPolicy": {"enabled": False}}
"""Disables objects that are slow to render and not needed."""
Objects = dict[tuple[str, str], Manifest]
"""Objects by kind and `namespace/name`."""


class HelmFailed(Exception):
    """Helm failed; the message is its error output."""


class Helm:
    """Runs Helm with separate configuration files, optionally on a cluster."""

    def __init__(self, folder: Path, kubeconfig: Path = Path("/nowhere")) -> None:
        homes = {f"HELM_{home}_HOME": str(folder / home.lower()) for home in ("CACHE", "CONFIG", "DATA")}
        self.environment = os.environ | homes | {"KUBECONFIG": str(kubeconfig)}

    def run(self, *args: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm and return its output."""
        given = () if values is None else ("--values=-",)
        done = subprocess.run(
            [program("helm"), *args, *given],
            input=None if values is None else yaml.safe_dump(dict(values)),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise HelmFailed(done.stderr.strip())
        return done.stdout

    def template(self, values: Mapping[str, Any] | None = None, *args: str, release: str = RELEASE) -> Objects:
        """The objects of the chart with these values."""
        given = over(IMAGE, values or {})
        return objects(self.run("template", release, CHART, "--namespace", NAMESPACE, *args, values=given))


def render(helm: Helm, values: Manifest, release: str = RELEASE) -> Objects:
    """The objects of the chart with these values, without the large ones."""
    return helm.template(SMALL | values, release=release)


def over(below: Any, above: Any) -> Any:
    """Values merged as Helm merges files of values."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: over(below.get(name), value) for name, value in above.items()}


def kustomized(folder: Path) -> Objects:
    done = subprocess.run([program("kubectl"), "kustomize", folder], capture_output=True, text=True, check=True)
    return objects(done.stdout)


def objects(text: str) -> Objects:
    found = [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]
    named = {identity(item): item for item in found}
    assert len(named) == len(found), "an object is rendered twice"
    return named


def identity(item: Manifest) -> tuple[str, str]:
    metadata = item["metadata"]
    return item["kind"], f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]


def without_helm_metadata(found: Objects) -> Objects:
    """The same objects without the labels and annotation of Helm."""
    for item in found.values():
        for part in ("labels", "annotations"):
            kept = {name: value for name, value in item["metadata"].pop(part, {}).items() if name not in OF_HELM}
            if kept:
                item["metadata"][part] = kept
    return found
