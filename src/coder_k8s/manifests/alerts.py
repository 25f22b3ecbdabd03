"""The alerts reference page, generated from the rule file."""

import re
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).with_name("alerts.yaml")
TITLES = {"coder-k8s-operator": "The operator", "coder-k8s-coder": "Coder"}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def page() -> str:
    """Return the page. Each alert has a heading, which its `runbook_url` links to."""
    blocks = [
        "# Alerts",
        "The alerting rules in `config/monitoring`, and in the chart with `prometheusRule.enabled`. A `critical` alert "
        "needs immediate action; a `warning` can wait until the next working day. The rules use only the operator's "
        "[metrics](metrics.md).",
    ]
    for group in groups():
        blocks.append(f"## {TITLES[group['name']]}")
        for rule in group["rules"]:
            blocks += _section(rule)
    return "\n\n".join(blocks) + "\n"


def _section(rule: dict[str, Any]) -> list[str]:
    annotations = rule["annotations"]
    duration = f", after {rule['for']}" if "for" in rule else ""
    return [
        f"### {rule['alert']}",
        f"`{rule['labels']['severity']}`{duration}. {_plain(annotations['description'])}",
        f"> {_linked(annotations['action'])}",
        f"```text\n{rule['expr']}\n```",
    ]


def _linked(text: str) -> str:
    """Add the links of the page, which alerts do not have: they are read elsewhere."""
    return text.replace("conditions reference", "[conditions reference](conditions.md)")


def _plain(text: str) -> str:
    """Replace template variables of Prometheus by placeholders: `<kind>` for `{{ $labels.kind }}`."""
    named = re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]* \}\}", r"`<\1>`", text)
    return named.replace(">`/`<", ">/<")
