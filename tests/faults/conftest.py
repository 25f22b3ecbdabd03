"""Places in which everything works, until something goes wrong."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.controllers.controlplane.planes import observing
from tests.controllers.controlplane.test_fields import rolling_out
from tests.support.controlplanes import database, demo
from tests.support.rotations import RotationNamespace, rotation_namespace

__all__ = ["database", "demo"]


@pytest.fixture
async def place(cluster: ClusterAccess, crds: None, namespace: str) -> AsyncIterator[RotationNamespace]:
    """A namespace in which every Deployment is rolled out at once."""
    async with (
        rotation_namespace(cluster.kubeconfig, namespace, lambda: datetime.now(UTC)) as place,
        observing(cluster.kubeconfig, [namespace]) as observer,
        rolling_out(observer),
    ):
        yield place
