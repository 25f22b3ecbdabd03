from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coder_k8s.cli import main
from coder_k8s.dev.cluster import ClusterAccess

Console = Callable[..., Result]


@pytest.fixture
def kubeconfig(cluster: ClusterAccess, namespace: str, tmp_path: Path) -> Path:
    """The administrator, whose context has the namespace of the test."""
    files = {"client-certificate": str(cluster.admin_certificate), "client-key": str(cluster.admin_key)}
    return cluster.write_kubeconfig(tmp_path / "kubeconfig", files, namespace)


@pytest.fixture
def console(kubeconfig: Path, crds: None) -> Console:
    """Runs a command in the namespace of the test: `console("status", "-o", "json")`."""

    def run(*args: str) -> Result:
        return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, args)

    return run
