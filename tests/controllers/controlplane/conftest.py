"""A cluster for operators that watch all namespaces, and a control plane with a database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import Cluster
from tests.support.controlplanes import database, demo

from .administrator import own_cluster

__all__ = ["database", "demo"]


@pytest.fixture(scope="session")
def whole_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster in which the operator of the current test watches all namespaces; one per worker that needs it."""
    with own_cluster(audit) as cluster:
        yield cluster
