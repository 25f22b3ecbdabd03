"""Namespaces with objects in steady state, for tests that inject faults."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from tests.controllers.controlplane.planes import observing, rolling_out
from tests.support.clock import SystemClock
from tests.support.controlplanes import database, demo
from tests.support.crashes import trial
from tests.support.rotations import RotationNamespace, rotation_namespace

from .stale_views import ready_proxy, stale, steady

__all__ = ["database", "demo", "ready_proxy", "stale", "steady", "trial"]


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RotationNamespace]:
    """A namespace in which every Deployment is rolled out immediately."""
    async with (
        rotation_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, SystemClock()) as place,
        observing(cluster.kubeconfig, [namespace]) as observer,
        rolling_out(observer),
    ):
        yield place
