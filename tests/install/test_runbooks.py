"""The links of the alerts of the chart."""

import pytest

from coder_k8s.manifests import alerts
from tests.install.rendering import NAMESPACE, ROOT, Helm, Manifest, render
from tests.manifests.markdown import anchors

NAMES = [rule["alert"] for group in alerts.groups() for rule in group["rules"]]
BASE = "https://docs.example.com/coder-k8s"


def runbooks(helm: Helm, values: Manifest) -> dict[str, str]:
    """The link of each alert that has one."""
    rule_values = {"enabled": True} | values.get("prometheusRule", {})
    found = render(helm, values | {"prometheusRule": rule_values})["PrometheusRule", f"{NAMESPACE}/coder-k8s"]
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == NAMES
    return {rule["alert"]: url for rule in rules if (url := rule["annotations"].get("runbook_url"))}


@pytest.mark.parametrize("base", [BASE, BASE + "/"])
def test_every_runbook_url_is_an_anchor_of_a_page_of_the_documentation(helm: Helm, base: str) -> None:
    found = runbooks(helm, {"docsUrl": base})
    assert list(found) == NAMES
    for url in found.values():
        page, _, anchor = url.removeprefix(f"{BASE}/").partition("/#")
        assert anchor in anchors((ROOT / "docs" / f"{page}.md").read_text())


def test_without_published_documentation_there_are_no_links(helm: Helm) -> None:
    assert runbooks(helm, {}) == {}


@pytest.mark.parametrize(
    "url",
    [
        "https://wiki.example.com/coder",
        "https://example.com/$1",
        "https://example.com/${1}/$0?a=b&c=%20",
        "http://x/{a}'\"!",
    ],
)
def test_runbook_url_is_used_literally(helm: Helm, url: str) -> None:
    found = runbooks(helm, {"docsUrl": BASE, "prometheusRule": {"runbookUrl": url}})
    assert found == {name: f"{url}#{name.lower()}" for name in NAMES}
