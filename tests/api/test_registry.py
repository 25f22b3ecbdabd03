"""A kind that is registered appears everywhere without further edits."""

import shutil
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from coder_k8s import app
from coder_k8s.api import GROUP, RESOURCES, VERSION, CoderObject
from coder_k8s.api.events import Event
from coder_k8s.api.markers import Resource
from coder_k8s.api.reasons import NAME_TAKEN, Reason
from coder_k8s.api.shared import Int32, Part, columns
from coder_k8s.console import render
from coder_k8s.console.objects import Found, all_kinds, parse_target
from coder_k8s.console.tree import build
from coder_k8s.dev import sample_watch, table
from coder_k8s.kube.objects import Kind, ObjectMeta
from coder_k8s.manifests import files, rbac, reference


class MonitorCondition(StrEnum):
    """The conditions of a CoderMonitor."""

    CONNECTED = "Connected"
    """The monitor is connected."""


class MonitorSpec(Part, kw_only=True, frozen=True):
    """Desired state."""

    interval: Int32 = 60
    """Seconds between two checks."""


class CoderMonitor(CoderObject, kw_only=True):
    """Checks a Coder deployment."""

    spec: MonitorSpec = MonitorSpec()


LISTENING = Reason("Listening", "The monitor listens.")
MONITOR = Resource(
    Kind(GROUP, VERSION, "CoderMonitor", "codermonitors", CoderMonitor),
    short_name="cmon",
    noun="monitor",
    columns=columns(),
    conditions=MonitorCondition,
    reasons={MonitorCondition.CONNECTED: (LISTENING, NAME_TAKEN)},
    events=(Event("MonitorStarted", "Normal", "The operator started the monitor."),),
)
EAST = CoderMonitor(metadata=ObjectMeta(namespace="demo", name="east"))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Register the kind, with an example. Only `app`, which needs a controller of each kind, does not know it."""
    readers = {module for module in list(sys.modules.values()) if getattr(module, "RESOURCES", None) is RESOURCES}
    assert {app, files, render, sample_watch} < readers
    extended = (*RESOURCES, MONITOR)  # this module is also one of the readers
    for module in readers - {app}:
        monkeypatch.setattr(module, "RESOURCES", extended)
    shutil.copytree(reference.EXAMPLES, tmp_path / "examples")
    (tmp_path / "examples" / "codermonitor.yaml").write_text("kind: CoderMonitor\n")
    monkeypatch.setattr(reference, "EXAMPLES", tmp_path / "examples")


def test_every_registered_kind_has_a_controller_that_writes_its_status() -> None:
    allowed = {name for rules in rbac.declared().values() for rule in rules for name in rule.resources}
    assert {f"{resource.kind.plural}/status" for resource in RESOURCES} <= allowed


@pytest.mark.usefixtures("registered")
def test_registered_kind_is_generated() -> None:
    found = files.generated()
    definition = yaml.safe_load(found["config/crd/codermonitors.yaml"])
    assert definition["spec"]["names"]["shortNames"] == ["cmon"]
    assert found["charts/coder-k8s/files/crd/codermonitors.yaml"] == found["config/crd/codermonitors.yaml"]
    assert "kind: CoderMonitor\n" in found["install.yaml"]
    assert "codermonitors/status" in found["config/rbac/user-roles.yaml"]
    page = found["docs/reference/codermonitor.md"]
    assert "Seconds between two checks." in page
    assert "- [`Listening`](conditions.md#listening): The monitor listens." in page


@pytest.mark.usefixtures("registered")
def test_conditions_and_events_of_a_registered_kind_are_in_the_reference() -> None:
    found = files.generated()
    conditions = found["docs/reference/conditions.md"]
    assert (
        "| `Connected` | The monitor is connected. | [Listening](#listening), [NameTaken](#nametaken) |" in conditions
    )
    assert "### Listening\n\n`Connected` of CoderMonitor: The monitor listens." in conditions
    assert (
        "| `MonitorStarted` | Normal | CoderMonitor | The operator started the monitor. |"
        in found["docs/reference/events.md"]
    )


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("word", ["cmon", "monitor", "codermonitor", "CoderMonitors", f"codermonitors.{GROUP}"])
def test_console_knows_a_registered_kind(word: str) -> None:
    assert parse_target(f"{word}/east").kind == MONITOR.kind
    assert MONITOR.kind in all_kinds()


@pytest.mark.usefixtures("registered")
def test_registered_kind_is_shown() -> None:
    tree = build(Found([(MONITOR.kind, EAST)], []))
    assert "└─ monitor east  not ready\n" in render.as_text(tree, render.plain, datetime.now(UTC))
    assert table.row(EAST)[:2] == ("CoderMonitor", "demo/east")
