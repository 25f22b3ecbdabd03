"""A world per test, in a namespace of the shared cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess

from .world import World, world


@pytest.fixture
async def place(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str) -> AsyncIterator[World]:
    async with world(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made
