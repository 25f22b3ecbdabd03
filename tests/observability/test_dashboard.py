"""The Grafana dashboard uses only metrics that exist, and Grafana can show it."""

import json
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import RESOURCES
from coder_k8s.manifests import dashboard
from coder_k8s.manifests.reference_metrics import Metric
from tests.observability.promql import assert_known, promtool, selectors, uses, write

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "dashboards" / "coder-k8s.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TABLES = [panel for panel in PANELS if panel["type"] == "table"]
TIMELINES = [panel for panel in PANELS if panel["type"] == "state-timeline"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def rows() -> dict[str, list[Any]]:
    """The panels of each row, by its title."""
    found: dict[str, list[Any]] = {}
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            found[panel["title"]] = []
        else:
            found[list(found)[-1]].append(panel)
    return found


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= dashboard.WIDTH for place in places)
    for one, following in pairwise(places):
        beside = one["y"] == following["y"] and one["x"] + one["w"] <= following["x"]
        assert beside or one["y"] + one["h"] <= following["y"]


def test_every_panel_has_a_description_and_queries() -> None:
    assert sum(len(panels) for panels in dashboard.rows().values()) == len(PANELS)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_overview_consists_of_tables_and_state_timelines() -> None:
    assert [panel["type"] for panel in rows()["Overview"]] == ["table", "table", "state-timeline"]


def test_every_kind_has_a_row_with_a_table_and_a_state_timeline_of_its_objects() -> None:
    kinds = [f'kind="{resource.kind.name}"' for resource in RESOURCES]
    others = ("Overview", "Health of Coder", "Jobs without a provisioner", "Autoscaling", "Operator")
    per_kind = [panels for title, panels in rows().items() if not title.startswith(others)]
    for kind, panels in zip(kinds, per_kind, strict=True):
        shown = {panel["type"] for panel in panels if f"{kind}}})" in panel["targets"][0]["expr"]}
        assert shown == {"table", "state-timeline"}


def test_values_of_a_state_timeline_have_texts_and_colors() -> None:
    for panel in TIMELINES:
        field = panel["fieldConfig"]["defaults"]
        texts = field["mappings"][0]["options"]
        steps = field["thresholds"]["steps"]
        assert list(texts) == [str(number) for number in range(len(texts))]
        assert [step["value"] for step in steps] == [None, *range(1, len(texts))]
        assert [step["color"] for step in steps] == [text["color"] for text in texts.values()]


@pytest.mark.parametrize("panel", TABLES, ids=lambda panel: panel["title"])
def test_columns_of_a_table_are_its_labels_and_values(panel: dict[str, Any]) -> None:
    *merged, organized = panel["transformations"]
    targets = panel["targets"]
    assert [each["id"] for each in merged] == (["merge"] if len(targets) > 1 else [])
    names = [f"Value #{target['refId']}" for target in targets] if len(targets) > 1 else ["Value"]
    grouped = [re.match(r"[^(]*\b(?:max|sum|count) by \(([^)]*)\)", target["expr"]) for target in targets]
    labels = {label.strip() for group in grouped if group for label in group[1].split(",")}
    fields = {"Time", *names, *labels}
    shown, hidden = organized["options"]["renameByName"], organized["options"]["excludeByName"]
    assert {*shown, *hidden} == fields
    assert not shown.keys() & hidden.keys()
    assert list(organized["options"]["indexByName"]) == list(shown)
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in shown.values()
    assert all(target["instant"] and target["format"] == "table" for target in targets)


def test_entitlements_are_words() -> None:
    (panel,) = [panel for panel in TABLES if panel["title"] == "Entitlements"]
    (override,) = panel["fieldConfig"]["overrides"]
    (mapping,) = next(each["value"] for each in override["properties"] if each["id"] == "mappings")
    texts = {value: option["text"] for value, option in mapping["options"].items()}
    assert texts == {"0": "Not entitled", "1": "Grace period", "2": "Entitled"}


def test_queries_use_only_variables_that_the_dashboard_has() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = {name for expr in [*EXPRESSIONS, *dashboard.VARIABLES.values()] for name in VARIABLE.findall(expr)}
    assert used - {"__rate_interval"} == variables - {"datasource"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_variables_select_what_a_panel_shows(panel: dict[str, Any], registry: list[Metric]) -> None:
    """Metrics of objects and controllers have a label for it. Every metric has the job of its operator."""
    labels = {name: {"job", *metric.labels} for metric in registry for name in metric.series}
    for target in panel["targets"]:
        found = selectors(target["expr"])
        assert {name for name, _ in found} == uses(target["expr"]).metrics.keys()
        for name, matchers in found:
            for variable in dashboard.VARIABLES:
                assert (f'{variable}=~"${variable}"' in matchers) == (variable in labels[name]), target["expr"]


def test_only_the_selected_namespace_is_shown(tmp_path: Path, registry: list[Metric]) -> None:
    """With objects of every kind in one namespace, each query has results for this namespace and none for another."""
    of_objects = [metric for metric in registry if "namespace" in metric.labels]
    names = {name for metric in of_objects for name in metric.series}
    queries = [expr for expr in EXPRESSIONS if names.intersection(uses(expr).metrics)]
    assert len(queries) > len(TABLES)
    checks = [
        {"expr": f"count({select(expr, namespace)}) > bool 0", "eval_time": "2h", "exp_samples": expected}
        for expr in queries
        for namespace, expected in {"coder": [{"value": 1}], "other": []}.items()
    ]
    inputs = [
        {"series": series, "values": "0x120" if metric.type == "gauge" else "0+1x120"}
        for metric in of_objects
        for series in all_series(metric)
    ]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": checks}
    promtool("test", "rules", write(tmp_path / "test.yaml", {"rule_files": [], "tests": [test]}))


def all_series(metric: Metric) -> list[str]:
    """The series of a metric in the namespace `coder`, one for each kind, state and bucket."""
    known = {"kind": [resource.kind.name for resource in RESOURCES], "state": ["idle", "busy", "offline"]}
    values = product(*(known.get(label, ["coder"]) for label in metric.labels))
    matchers = [",".join(map('{}="{}"'.format, metric.labels, each)) for each in values]
    if metric.type == "histogram":
        matchers = [f'{each},le="{bound}"' for each in matchers for bound in ("60", "+Inf")]
    return [f"{metric.series[0]}{{{each}}}" for each in matchers]


def select(expr: str, namespace: str) -> str:
    """The query of a panel for one namespace and all operators."""
    return expr.replace("$namespace", namespace).replace("$job", ".*")


def test_every_namespace_with_an_object_can_be_selected() -> None:
    assert dashboard.VARIABLES["namespace"] == 'label_values(coder_k8s_object_ready{job=~"$job"}, namespace)'


def test_queries_use_only_metrics_and_labels_that_exist(labels: dict[str, set[str]]) -> None:
    for expr in EXPRESSIONS:
        assert_known(expr, labels)


def test_legends_use_labels_of_the_result(labels: dict[str, set[str]]) -> None:
    for panel in PANELS:
        for target in panel["targets"] if panel["type"] != "table" else []:
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


def test_assert_known_finds_what_does_not_exist(labels: dict[str, set[str]]) -> None:
    assert_known('sum by (controller) (rate(workqueue_depth{controller=~"a|b"}[5m])) / 2', labels)
    for wrong in (
        "sum(rate(workqueue_deepness[5m]))",
        'workqueue_depth{colour="red"}',
        "sum by (colour) (workqueue_depth)",
        "workqueue_depth and on (job) nothing",
    ):
        with pytest.raises(AssertionError):
            assert_known(wrong, labels)
