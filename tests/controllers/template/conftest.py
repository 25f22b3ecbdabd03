"""A namespace of the shared cluster per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.templates import TemplateNamespace, template_namespace


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[TemplateNamespace]:
    async with template_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made
