import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderControlPlane, CoderObject, CoderProvisioner, CoderWorkspaceProxy
from coder_k8s.dev.table import Row, Screen, render, row
from tests.dev.terminal import Terminal

SPEC = {"controlPlaneRef": {"name": "coder"}, "replicas": 3}


def made(kind: type[CoderObject], ready: str = "", at: int = 2, **status: Any) -> CoderObject:
    condition = {"type": "Ready", "reason": "Because", "message": "words", "observedGeneration": at, "status": ready}
    conditions = [{**condition, "lastTransitionTime": datetime(2026, 1, 1, tzinfo=UTC)}] if ready else []
    metadata = {"namespace": "coder", "name": "one", "generation": 2}
    return msgspec.convert({"metadata": metadata, "spec": SPEC, "status": {**status, "conditions": conditions}}, kind)


@pytest.mark.parametrize(
    ("item", "cells"),
    [
        (made(CoderControlPlane), ("Unknown", "NotObserved", "0/3", "-", "-", "")),
        (
            made(CoderControlPlane, "True", readyReplicas=3, licenseTier="premium"),
            ("True", "Because", "3/3", "-", "premium", ""),
        ),
        (made(CoderControlPlane, "True", at=1), ("Unknown", "NotObserved", "0/3", "-", "-", "")),
        (
            made(CoderProvisioner, "False", readyReplicas=3, daemons={"connected": 2}),
            ("False", "Because", "3/3", "2/3", "-", "words"),
        ),
        (made(CoderProvisioner), ("Unknown", "NotObserved", "0/3", "0/3", "-", "")),
        (made(CoderWorkspaceProxy, "Unknown"), ("Unknown", "Because", "0/3", "-", "-", "words")),
    ],
)
def test_the_row_of_an_object(item: CoderObject, cells: tuple[str, ...]) -> None:
    assert row(item) == (type(item).__name__, "coder/one", *cells)


def line(name: str, ready: str, message: str = "") -> Row:
    return Row("CoderProvisioner", name, ready, "Because", "3/3", "3/3", "-", message)


def test_columns_are_aligned_and_lines_are_cut() -> None:
    header, one, other = render([line("coder/one", "True"), line("coder/another", "Unknown", "words " * 20)], width=80)
    assert header.index("READY") == one.index("True") == other.index("Unknown")
    assert header.index("DAEMONS") == one.rindex("3/3")
    assert len(other) == 80


def test_a_terminal_updates_the_table_in_place() -> None:
    terminal = Terminal()
    screen = Screen(terminal, 100)
    screen.show([line("coder/one", "False", "no daemons"), line("coder/two", "False")], "waiting")
    screen.show([line("coder/one", "True")], "all Ready")
    assert terminal.shown == [*render([line("coder/one", "True")]), "", "all Ready", ""]
    assert "\x1b[32m  True" in terminal.getvalue()


def test_an_unchanged_table_is_not_written_again() -> None:
    terminal = Terminal()
    screen = Screen(terminal, 100)
    screen.show([line("coder/one", "True")], "all Ready")
    once = terminal.getvalue()
    screen.show([line("coder/one", "True")], "all Ready")
    assert terminal.getvalue() == once


def test_a_file_gets_a_line_per_change() -> None:
    file = io.StringIO()
    screen = Screen(file, 100)
    for ready, footer in (("False", "waiting"), ("False", "waiting"), ("True", "all Ready")):
        screen.show([line("coder/one", ready), line("coder/two", "True")], footer)
    words = "CoderProvisioner  coder/{}  {}  Because  3/3  3/3  -".format
    assert file.getvalue().splitlines() == [
        words("one", "False"),
        words("two", "True"),
        "waiting",
        words("one", "True"),
        "all Ready",
    ]
