"""Generated files of the Helm chart: its metadata, and the files that the templates read."""

import base64
import tomllib
from pathlib import Path
from typing import Any

import yaml

from coder_k8s import __version__
from coder_k8s.api import RESOURCES

from . import reference
from .embedded import Json
from .rbac import NAME

ROOT = Path(__file__).parents[3]
VALUES = ROOT / "charts" / "coder-k8s" / "values.yaml"
ICON = Path(__file__).with_name("icon.svg")
DESCRIPTION = "An operator that runs Coder: control planes, external provisioners and workspace proxies."
KUBERNETES = "1.30"
"""The first version with a stable ValidatingAdmissionPolicy."""


def metadata() -> Json:
    """Return the content of `Chart.yaml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": DESCRIPTION,
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": f">={KUBERNETES}.0-0",
        "home": project["urls"]["Documentation"],
        "sources": [project["urls"]["Source"]],
        "keywords": project["keywords"],
        "icon": f"data:image/svg+xml;base64,{base64.b64encode(ICON.read_bytes()).decode()}",
        "annotations": _annotations(project["license"]),
    }


def _annotations(license: str) -> Json:
    """Return the annotations that Artifact Hub reads. Their values are text, also those that contain YAML."""
    crds = [
        {
            "kind": resource.kind.name,
            "version": resource.kind.version,
            "name": str(resource.kind),
            "displayName": resource.kind.name,
            "description": reference.paragraph(resource.kind.type.__doc__),
        }
        for resource in RESOURCES
    ]
    values = {
        "category": "integration-delivery",
        "license": license,
        "operator": "true",
        "operatorCapabilities": "Seamless Upgrades",
        "prerelease": "true",
        "crds": _text(crds),
        "crdsExamples": _text([yaml.safe_load(reference.example(resource)) for resource in RESOURCES]),
    }
    return {f"artifacthub.io/{name}": value for name, value in values.items()}


def rules(rbac: dict[str, list[Json]]) -> Json:
    """Return the rules of every role, by the name that the templates use."""
    view, edit = rbac["user-roles.yaml"]
    return {
        "cluster": rbac["operator.yaml"][0]["rules"],
        "namespaced": rbac["namespaced/operator.yaml"][0]["rules"],
        "leaderElection": rbac["leader-election.yaml"][0]["rules"],
        "view": view["rules"],
        "edit": edit["rules"],
    }


def defaults() -> Any:
    """Return the defaults of all values. Templates cannot read `values.yaml` itself."""
    return yaml.safe_load(VALUES.read_text())


def _text(content: Any) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=1000)
    return text
