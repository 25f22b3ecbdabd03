"""The Grafana dashboard, generated from its list of panels."""

import json
from itertools import count
from pathlib import Path

import yaml

from .dashboard_panels import SOURCE, Json, panel

PANELS = Path(__file__).with_name("dashboard.yaml")
NAME = "coder-k8s"
SCHEMA_VERSION = 42
"""The last version of the classic model, which every version of Grafana imports."""
WIDTH, HEIGHT = 24, 8
"""Width of Grafana's grid, and height of a panel."""
LABELS = {"job": "Operator", "namespace": "Namespace", "controller": "Controller"}
VARIABLES = {
    "job": "label_values(coder_k8s_watch_age_seconds, job)",
    "namespace": 'label_values(coder_k8s_object_ready{job=~"$job"}, namespace)',
    "controller": 'label_values(controller_runtime_max_concurrent_reconciles{job=~"$job"}, controller)',
}


def text(mark: str) -> str:
    """Return the dashboard as JSON, with the marker of generated files in its first line."""
    body = {"description": f"The coder-k8s operator and the Coder deployments that it manages. {mark}", **_dashboard()}
    return json.dumps(body, indent=2).replace("{\n  ", "{ ", 1) + "\n"


def rows() -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = yaml.safe_load(PANELS.read_text())
    return found


def _dashboard() -> Json:
    return {
        "uid": NAME,
        "title": NAME,
        "tags": [NAME, "kubernetes"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source(), *(_variable(name, query) for name, query in VARIABLES.items())]},
        "panels": _panels(),
    }


def _source() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> Json:
    return {
        "name": name,
        "label": LABELS[name],
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[Json]:
    """Return all rows and panels with their grid positions, from top to bottom."""
    ids = count(1)
    placed: list[Json] = []
    top = 0
    for title, contents in rows().items():
        position = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        placed.append(
            {"id": next(ids), "type": "row", "title": title, "collapsed": False, "gridPos": position, "panels": []}
        )
        left, top = 0, top + 1
        for content, width in zip(contents, _widths(contents), strict=True):
            if left + width > WIDTH:
                left, top = 0, top + HEIGHT
            position = {"x": left, "y": top, "w": width, "h": HEIGHT}
            placed.append({"id": next(ids), **panel(content), "gridPos": position})
            left += width
        top += HEIGHT
    return placed


def _widths(contents: list[Json]) -> list[int]:
    """Return the width of each panel of a row. Panels without one share a line."""
    sharing = sum("width" not in content for content in contents)
    return [content.get("width") or WIDTH // sharing for content in contents]
