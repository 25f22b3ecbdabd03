"""A value that is null has its default, at every depth."""

from typing import Any

import pytest

from tests.install.rendering import DEFAULTS, IMAGE, Helm, Manifest, over

EVERYTHING: Manifest = {
    "networkPolicy": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "metrics": {"serviceMonitor": {"enabled": True}},
}
"""Enables everything that is disabled by default."""


def nulls(depth: int, default: Any = DEFAULTS) -> Any:
    """Null for each value of this depth; the parts of `resources` have no default of their own."""
    if depth == 0:
        return None
    inner = {name: nulls(depth - 1, value) for name, value in default.items() if depth == 1 or isinstance(value, dict)}
    return {name: value for name, value in inner.items() if depth == 1 or (value != {} and name != "resources")}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_null_is_the_default(helm: Helm, depth: int) -> None:
    assert helm.template(over(nulls(depth), IMAGE)) == helm.template()


@pytest.mark.parametrize("depth", [2, 3])
def test_null_is_the_default_with_everything_enabled(helm: Helm, depth: int) -> None:
    assert helm.template(over(nulls(depth), IMAGE | EVERYTHING)) == helm.template(EVERYTHING)


def test_every_value_is_tried_as_null() -> None:
    assert nulls(1) == dict.fromkeys(DEFAULTS)
    assert nulls(2)["metrics"] == {"enabled": None, "serviceMonitor": None, "podMonitor": None}
    assert nulls(3) == {
        "metrics": {name: dict.fromkeys(DEFAULTS["metrics"][name]) for name in ("serviceMonitor", "podMonitor")}
    }
    assert "resources" not in nulls(2)
