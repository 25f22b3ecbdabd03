"""A namespace of the shared cluster per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.support.templates import TemplateNamespace, template_namespace


@pytest.fixture
async def place(
    request: pytest.FixtureRequest, cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[TemplateNamespace]:
    """Has the latest version of the simulator, unless the test has another one as a parameter."""
    version = getattr(request, "param", "2.36.1")
    async with template_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version) as made:
        yield made
