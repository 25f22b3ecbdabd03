"""A yard with one control plane that is ready."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.provisioners import Yard, yard


@pytest.fixture
async def place(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Yard]:
    async with yard(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        await made.make_plane("demo")
        yield made
