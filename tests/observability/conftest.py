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
    """The labels of each series, by the name to write in a query."""
    target = {"job", "instance", "namespace"}  # what Prometheus gives to all that it scrapes
    buckets = {"histogram": {"le"}}
    return {
        name: target.union(metric.labels, buckets.get(metric.type, set()))
        for metric in registry
        for name in metric.series
    }
