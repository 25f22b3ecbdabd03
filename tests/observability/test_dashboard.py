"""The Grafana dashboard is valid and uses only existing metrics and labels."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.manifests import dashboard
from coder_k8s.manifests.reference_metrics import Metric
from tests.observability.promql import assert_known, promtool, uses, write

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "dashboards" / "coder-k8s.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= dashboard.WIDTH for place in places)
    for one, following in pairwise(places):
        beside = one["y"] == following["y"] and one["x"] + one["w"] <= following["x"]
        assert beside or one["y"] + one["h"] <= following["y"]


def test_every_panel_has_a_query() -> None:
    assert sum(len(panels) for panels in dashboard.rows().values()) == len(PANELS)
    for title, panels in dashboard.rows().items():
        for panel in panels:
            assert panel["title"], title
            assert panel["description"].endswith("."), panel["title"]
    for panel in PANELS:
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_queries_use_only_variables_that_the_dashboard_has() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = {name for expr in [*EXPRESSIONS, *dashboard.VARIABLES.values()] for name in VARIABLE.findall(expr)}
    assert used - {"__rate_interval"} == variables - {"datasource"}


def test_queries_use_only_metrics_and_labels_that_exist(labels: dict[str, set[str]]) -> None:
    for expr in EXPRESSIONS:
        assert_known(expr, labels)


def test_legends_use_labels_of_the_query_result(labels: dict[str, set[str]]) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            used = uses(target["expr"])
            left = used.grouping or set().union(*(labels[name] for name in used.metrics))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= left, target["expr"]


def test_every_metric_of_the_operator_is_shown(registry: list[Metric]) -> None:
    shown = {name for expr in EXPRESSIONS for name in uses(expr).metrics}
    own = [metric for metric in registry if metric.name.startswith("coder_k8s_")]
    assert [metric.name for metric in own if not shown.intersection(metric.series)] == []


def test_promtool_can_parse_every_query(tmp_path: Path) -> None:
    plain = [VARIABLE.sub("5m", expr) for expr in EXPRESSIONS]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(plain)]
    output = promtool("check", "rules", write(tmp_path / "rules.yaml", {"groups": [{"name": "all", "rules": rules}]}))
    assert f"{len(EXPRESSIONS)} rules found" in output


def test_unknown_metrics_and_labels_are_found(labels: dict[str, set[str]]) -> None:
    assert_known('sum by (controller) (rate(workqueue_depth{controller=~"a|b"}[5m])) / 2', labels)
    for wrong in (
        "sum(rate(workqueue_deepness[5m]))",
        'workqueue_depth{colour="red"}',
        "sum by (colour) (workqueue_depth)",
        "workqueue_depth and on (job) nothing",
    ):
        with pytest.raises(AssertionError):
            assert_known(wrong, labels)
