"""The metadata and the README of the chart."""

import base64
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from coder_k8s.api import RESOURCES
from coder_k8s.manifests import chart, chart_readme

CAPABILITIES = ("Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot")
"""The levels that Artifact Hub accepts."""


def test_chart_has_what_a_catalog_shows() -> None:
    metadata = chart.metadata()
    assert "operator" in metadata["keywords"]
    for url in (metadata["home"], *metadata["sources"]):
        assert url.startswith("https://")
        assert "github.com/coder/" not in url  # other projects
    kind, _, data = metadata["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("}svg")  # noqa: S314 - our own file


def test_artifact_hub_gets_every_kind_with_its_example() -> None:
    annotations = chart.metadata()["annotations"]
    assert all(isinstance(value, str) for value in annotations.values())
    assert annotations["artifacthub.io/operatorCapabilities"] in CAPABILITIES
    crds = yaml.safe_load(annotations["artifacthub.io/crds"])
    assert [crd["name"] for crd in crds] == [str(resource.kind) for resource in RESOURCES]
    assert all(crd["description"].endswith(".") for crd in crds)
    examples = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    assert [example["kind"] for example in examples] == [crd["kind"] for crd in crds]


def leaves(values: Any, path: str = "") -> list[str]:
    if not isinstance(values, dict) or not values:
        return [path]
    return [leaf for name, value in values.items() for leaf in leaves(value, f"{path}.{name}".lstrip("."))]


def test_every_value_is_described_once() -> None:
    described = [name for name, _ in chart_readme.documented(chart.VALUES.read_text())]
    for leaf in leaves(chart.defaults()):
        assert len([name for name in described if f"{leaf}.".startswith(f"{name}.")]) == 1, leaf


@pytest.mark.parametrize(
    "row",
    [
        '| `image.repository` | `""` | Required: ',
        "| `image.pullPolicy` | `IfNotPresent` | ",
        "| `metrics.serviceMonitor.interval` | `30s` | Scrape interval. |",
        '| `resources` | `{"requests": {',
        "| `replicas` | `2` | Number of replicas. ",
    ],
)
def test_readme_has_a_row_for_a_value(row: str) -> None:
    assert f"\n{row}" in chart_readme.page()


def test_a_comment_belongs_to_the_value_below_it() -> None:
    text = "# About the file.\n\na: 1\n# Of b,\n# two lines.\nb:\n  # Of c.\n  c: 2\n  d: 3\n\n# Of e.\ne: []\n"
    assert list(chart_readme.documented(text)) == [("b", "Of b, two lines."), ("b.c", "Of c."), ("e", "Of e.")]
