"""The reference pages of alerts, commands, conditions, events, flags and metrics."""

import dataclasses
import re
from collections.abc import Callable

import click
import pytest

from coder_k8s.api import RESOURCES
from coder_k8s.api.events import COMMON_EVENTS
from coder_k8s.api.reasons import COMMON_REASONS
from coder_k8s.cli import main
from coder_k8s.manifests import alerts, reference_metrics
from coder_k8s.manifests.reference_commands import commands_page, flags_page
from coder_k8s.manifests.reference_conditions import conditions_page, events_page
from coder_k8s.settings import ENV_PREFIX, Settings, flag_of
from tests.manifests.markdown import anchors

PAGES: dict[str, Callable[[], str]] = {
    "alerts.md": alerts.page,
    "commands.md": commands_page,
    "conditions.md": conditions_page,
    "events.md": events_page,
    "flags.md": flags_page,
    "metrics.md": reference_metrics.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_anchors_are_unique(name: str) -> None:
    found = anchors(PAGES[name]())
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_has_a_target(name: str) -> None:
    for page, anchor in re.findall(r"\]\(([\w.]*)#?([\w-]*)\)", PAGES[name]()):
        text = PAGES[page or name]()
        assert not anchor or anchor in anchors(text)


@pytest.mark.parametrize("name", PAGES)
def test_rows_of_a_table_have_the_same_number_of_cells(name: str) -> None:
    for table in re.findall(r"(?:^\|.*\|$\n?)+", PAGES[name](), re.MULTILINE):
        rows = [row.count("|") for row in table.splitlines()]
        assert len(set(rows)) == 1


def test_every_reason_is_an_anchor_with_its_meaning_and_remedy() -> None:
    text = conditions_page()
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))
    for conditions in (COMMON_REASONS, *(resource.reasons for resource in RESOURCES)):
        for condition, reasons in conditions.items():
            for reason in reasons:
                assert f"`{condition}` of " in sections[reason]
                assert reason.meaning in sections[reason]
                assert reason.remedy in sections[reason]


def test_every_event_has_a_row() -> None:
    text = events_page()
    for event in (*COMMON_EVENTS, *(event for resource in RESOURCES for event in resource.events)):
        assert f"| `{event}` | {event.type} |" in text


def test_every_flag_has_a_row_with_variable_and_default() -> None:
    text = flags_page()
    for field in dataclasses.fields(Settings):
        assert re.search(
            rf"^\| (`|<code>){flag_of(field.name)}\b.*\| `{ENV_PREFIX}{field.name.upper()}` \|", text, re.MULTILINE
        )
    assert "| `--watch-silence-limit DURATION` | `CODER_K8S_WATCH_SILENCE_LIMIT` | `180s` |" in text
    levels = "<code>--log-level [debug&#124;info&#124;warning&#124;error]</code>"
    assert f"| {levels} | `CODER_K8S_LOG_LEVEL` | `info` |" in text
    assert "| `--leader-elect`, `--no-leader-elect` | `CODER_K8S_LEADER_ELECT` | `--leader-elect` |" in text


def test_every_command_has_a_section_with_its_options() -> None:
    text = commands_page()
    for name, command in main.commands.items():
        _, _, section = text.partition(f"## coder-k8s {name}\n")
        assert section.startswith(f"\n```text\ncoder-k8s {name} ")
        if name != "controller":
            options = [option for option in command.params if isinstance(option, click.Option)]
            listed = section.partition("\n## ")[0].replace("<code>", "`")
            assert all(f"`{option.opts[-1]}" in listed for option in options)
