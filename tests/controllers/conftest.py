"""A cluster for operators that watch all namespaces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import Cluster
from tests.controllers.controlplane.administrator import own_cluster


@pytest.fixture(scope="session")
def whole_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster in which the operator of the current test watches all namespaces; one per worker that needs it."""
    with own_cluster(audit) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gateway_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster in which tests install the Gateway API and remove it, each in its own namespaces; one per worker."""
    with own_cluster(audit) as cluster:
        yield cluster
