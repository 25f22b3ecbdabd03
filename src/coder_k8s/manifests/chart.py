"""The parts of the Helm chart that follow from the code; its templates are written by hand and read them."""

from pathlib import Path
from typing import Any

import yaml

from .embedded import Json
from .manager import version
from .rbac import NAME

VALUES = Path(__file__).parents[3] / "charts" / "coder-k8s" / "values.yaml"
DESCRIPTION = "An operator that runs Coder: control planes, external provisioners and workspace proxies."


def metadata() -> Json:
    """`Chart.yaml`."""
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": DESCRIPTION,
        "type": "application",
        "version": version(),
        "appVersion": version(),
        # ValidatingAdmissionPolicy is stable from here on.
        "kubeVersion": ">=1.30.0-0",
    }


def rules(rbac: dict[str, list[Json]]) -> Json:
    """The rules of every role, by the name that the templates call it."""
    view, edit = rbac["user-roles.yaml"]
    return {
        "cluster": rbac["operator.yaml"][0]["rules"],
        "namespaced": rbac["namespaced/operator.yaml"][0]["rules"],
        "leaderElection": rbac["leader-election.yaml"][0]["rules"],
        "view": view["rules"],
        "edit": edit["rules"],
    }


def defaults() -> Any:
    """The default of every value; a template cannot read `values.yaml` itself."""
    return yaml.safe_load(VALUES.read_text())
