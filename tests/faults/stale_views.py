"""A view of the past, for operators that must not act on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from tests.support.forwarding import StaleView

PATIENCE = 30.0

Stale = Callable[[str], AbstractAsyncContextManager[tuple[Path, StaleView]]]


@pytest.fixture
def stale(cluster: ClusterAccess, operator_kubeconfig: Path, tmp_path: Path) -> Stale:
    """`stale(version)`: a kubeconfig by which the operator sees the state of that version, and who shows it."""

    @asynccontextmanager
    async def stale(version: str) -> AsyncIterator[tuple[Path, StaleView]]:
        async with StaleView(cluster, version) as past:
            yield past.kubeconfig(operator_kubeconfig, tmp_path / "past"), past

    return stale


async def now(client: Client, namespace: str) -> str:
    """The version of the state of this moment."""
    return [page async for page in client.list(SECRET, namespace)][-1].resource_version
