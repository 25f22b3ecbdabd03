"""A cluster for operators that care for all of it, and a control plane with a database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import Cluster
from tests.support.controlplanes import database, demo

from .administrator import own_cluster

__all__ = ["database", "demo"]


@pytest.fixture(scope="session")
def whole_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster all of which belongs to the operator of the present test; one per worker that needs it."""
    with own_cluster(audit) as cluster:
        yield cluster
