"""The metrics reference matches the metrics of a running operator."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coder_k8s.manifests.reference_metrics import Metric, page
from tests.e2e.operator_process import Start


@pytest.mark.timeout(120)
async def test_a_running_operator_exposes_the_metrics_of_the_reference(start: Start, registry: list[Metric]) -> None:
    operator = start()
    _, text = await operator.get("metrics", "/metrics")
    shown = {(family.name, family.type, family.documentation) for family in text_string_to_metric_families(text)}
    assert shown == {(metric.name, metric.type, metric.help) for metric in registry}


def test_labels_of_metrics(registry: list[Metric]) -> None:
    labels = {metric.name: metric.labels for metric in registry}
    assert labels["coder_k8s_provisioner_daemons"] == ("namespace", "name", "state")
    assert labels["process_open_fds"] == ()


@pytest.mark.parametrize(
    "row",
    [
        "| `controller_runtime_reconcile_total` | counter | `controller`, `result` | Reconciles by outcome",
        "| `controller_runtime_reconcile_time_seconds_bucket` | histogram | `controller` |",
        "| `coder_k8s_watch_age_seconds` | gauge | `kind` |",
    ],
)
def test_the_page_has_the_names_of_series(row: str) -> None:
    assert row in page()
