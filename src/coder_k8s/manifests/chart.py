"""Generated files of the Helm chart, which the templates read."""

from pathlib import Path
from typing import Any

import yaml

from .embedded import Json
from .manager import version
from .rbac import NAME

VALUES = Path(__file__).parents[3] / "charts" / "coder-k8s" / "values.yaml"
DESCRIPTION = "An operator that runs Coder: control planes, external provisioners and workspace proxies."


def metadata() -> Json:
    """Return the content of `Chart.yaml`."""
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": DESCRIPTION,
        "type": "application",
        "version": version(),
        "appVersion": version(),
        # The first version with a stable ValidatingAdmissionPolicy.
        "kubeVersion": ">=1.30.0-0",
    }


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
