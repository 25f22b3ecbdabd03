"""The reference of alerts, from the rule file itself."""

import re
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).with_name("alerts.yaml")
RUNBOOKS = "https://github.com/coder/coder-k8s/blob/main/docs/reference/alerts.md"
"""Where the page is read; an alert's anchor follows."""
TITLES = {"coder-k8s-operator": "The operator", "coder-k8s-coder": "Coder"}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def page() -> str:
    """Each alert under a heading of its own, which its `runbook_url` leads to."""
    blocks = [
        "# Alerts",
        "The rules of `config/monitoring`, and of the chart with `prometheusRule.enabled`. What is `critical` needs "
        "somebody now, what is a `warning` can wait for the morning. They need no [metrics](metrics.md) but "
        "the operator's.",
    ]
    for group in groups():
        blocks.append(f"## {TITLES[group['name']]}")
        for rule in group["rules"]:
            blocks += _section(rule)
    return "\n\n".join(blocks) + "\n"


def _section(rule: dict[str, Any]) -> list[str]:
    said = rule["annotations"]
    lasting = f", after {rule['for']}" if "for" in rule else ""
    return [
        f"### {rule['alert']}",
        f"`{rule['labels']['severity']}`{lasting}. {_plain(said['description'])}",
        f"> {said['action']}",
        f"```text\n{rule['expr']}\n```",
    ]


def _plain(text: str) -> str:
    """What Prometheus fills in, by its name: `<kind>` for `{{ $labels.kind }}`."""
    named = re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]* \}\}", r"`<\1>`", text)
    return named.replace(">`/`<", ">/<")
