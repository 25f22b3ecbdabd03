import pytest

from coder_k8s.manifests.reference_metrics import Metric, metrics
from tests.e2e.conftest import launch, lease_namespace, start

__all__ = ["launch", "lease_namespace", "start"]


@pytest.fixture(scope="session")
def registry() -> list[Metric]:
    """Every metric of an assembled process."""
    return metrics()


@pytest.fixture(scope="session")
def labels(registry: list[Metric]) -> dict[str, set[str]]:
    """The labels of each series, by its name in queries."""
    target = {"job", "instance", "namespace"}  # added by Prometheus
    buckets = {"histogram": {"le"}}
    return {
        name: target.union(metric.labels, buckets.get(metric.type, set()))
        for metric in registry
        for name in metric.series
    }
