"""A namespace with one control plane that is ready."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProvisionerNamespace]:
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        await made.make_plane("demo")
        yield made
