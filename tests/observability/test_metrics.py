"""The reference of metrics is what a running operator shows."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coder_k8s.manifests.reference_metrics import Metric, page
from tests.e2e.operator_process import Start

DERIVED = "_created"
"""When a counter or histogram began, which the library adds to each of them."""


@pytest.mark.timeout(120)
async def test_a_running_operator_shows_the_metrics_of_the_reference(start: Start, registry: list[Metric]) -> None:
    operator = start()
    _, text = await operator.get("metrics", "/metrics")
    shown = {
        (family.name, family.type, family.documentation)
        for family in text_string_to_metric_families(text)
        if not family.name.endswith(DERIVED)
    }
    assert shown == {(metric.name, metric.type, metric.help) for metric in registry}


def test_labels_are_those_of_the_series(registry: list[Metric]) -> None:
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
def test_the_page_has_the_names_to_write_in_a_query(row: str) -> None:
    assert row in page()
