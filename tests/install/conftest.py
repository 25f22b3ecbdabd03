import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import Cluster
from tests.e2e.conftest import launch
from tests.install.rendering import Helm
from tests.security.audit import auditing

__all__ = ["launch"]

CLUSTER_SCOPED = (
    "crd",
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path)


@pytest.fixture(scope="session")
def own_cluster(audit: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder), auditing(audit)) as cluster:
        yield cluster


@pytest.fixture
def bare_cluster(own_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster without cluster-scoped objects of the operator, so that a test can install it."""
    yield own_cluster
    selector = "--selector=app.kubernetes.io/name=coder-k8s"
    own_cluster.kubectl("delete", ",".join(CLUSTER_SCOPED), selector, "--timeout=60s")
