"""The panels of the Grafana dashboard: time series, state timelines and tables."""

from string import ascii_uppercase
from typing import Any

Json = dict[str, Any]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
DAY = 86400
STATES = {
    "ready": {0: ("Not Ready", "red"), 1: ("Ready", "green")},
    "healthy": {0: ("Unhealthy", "red"), 1: ("Healthy", "green")},
    "severity": {0: ("OK", "green"), 1: ("Warning", "orange"), 2: ("Error", "red")},
    "leader": {0: ("Standby", "blue"), 1: ("Leader", "green")},
    "entitlement": {0: ("Not entitled", "text"), 1: ("Grace period", "orange"), 2: ("Entitled", "green")},
}
"""Text and color of each value."""
THRESHOLDS = {
    "problems": {0: "green", 1: "red"},
    "expiry": {0: "red", 3 * DAY: "orange", 14 * DAY: "green"},
}
"""Lowest value of each color. The first color also applies to lower values."""
LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
OPTIONS: dict[str, Json] = {
    "timeseries": {"legend": LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "state-timeline": {
        "legend": LEGEND,
        "tooltip": {"mode": "single", "sort": "none"},
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.8,
    },
    "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
}


def panel(content: Json) -> Json:
    """Return a panel without its position."""
    type_ = content.get("type", "timeseries")
    built = {
        "type": type_,
        "title": content["title"],
        "description": content["description"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _field(content), "overrides": []},
        "options": OPTIONS[type_],
        "targets": [
            _target(reference, query, type_)
            for reference, query in zip(ascii_uppercase, content["queries"], strict=False)
        ],
    }
    return built | _table(content) if type_ == "table" else built


def _target(reference: str, query: Json, type_: str) -> Json:
    target = {"refId": reference, "datasource": SOURCE, "editorMode": "code", "expr": query["expr"]}
    if type_ == "table":
        return target | {"format": "table", "instant": True, "range": False}
    return target | {"format": "time_series", "legendFormat": query["legend"], "range": True}


def _field(content: Json) -> Json:
    """Return the unit of a value, with its texts and colors if it has any."""
    field: Json = {"unit": content.get("unit", "short")}
    if states := STATES.get(content.get("states", "")):
        texts = {
            str(value): {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(states.items())
        }
        field["mappings"] = [{"type": "value", "options": texts}]
        field |= _colors({value: color for value, (_, color) in states.items()})
    if "thresholds" in content:
        field |= _colors(THRESHOLDS[content["thresholds"]])
    return field


def _colors(colors: dict[int, str]) -> Json:
    steps = [{"value": value if index else None, "color": color} for index, (value, color) in enumerate(colors.items())]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}


def _table(content: Json) -> Json:
    """Return the parts that only a table has: the order and titles of its columns, and how each value is shown."""
    queries = dict(zip(ascii_uppercase, content["queries"], strict=False))
    values = {letter: f"Value #{letter}" if len(queries) > 1 else "Value" for letter in queries}
    columns: dict[str, str] = {values.get(name, name): title for name, title in content["columns"].items()}
    hidden = ["Time", *(value for value in values.values() if value not in columns)]
    organized = {
        "excludeByName": dict.fromkeys(hidden, True),
        "indexByName": {name: index for index, name in enumerate(columns)},
        "renameByName": columns,
    }
    overrides = [
        {"matcher": {"id": "byName", "options": columns[values[letter]]}, "properties": _properties(query)}
        for letter, query in queries.items()
        if values[letter] in columns
    ]
    merged = [{"id": "merge", "options": {}}] if len(queries) > 1 else []
    return {
        "fieldConfig": {"defaults": {"custom": {"align": "left"}}, "overrides": overrides},
        "transformations": [*merged, {"id": "organize", "options": organized}],
    }


def _properties(query: Json) -> list[Json]:
    field = _field(query)
    if "thresholds" in field:
        field["custom.cellOptions"] = {"type": "color-background", "mode": "basic"}
    return [{"id": name, "value": value} for name, value in field.items()]
