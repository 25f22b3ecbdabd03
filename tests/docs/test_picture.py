"""Terminal pictures show the final screen of a command."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS

SPAN = "{http://www.w3.org/2000/svg}tspan"


def spans(picture: Path) -> list[tuple[str | None, str | None]]:
    """Return each text with its color."""
    return [(span.text, span.get("fill")) for span in ElementTree.parse(picture).iter(SPAN)]  # noqa: S314 - a file of this project


def draw(picture: Path, *options: str, script: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, DOCS / "picture.py", *options, picture, "bash", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_rewritten_lines_and_colors(tmp_path: Path) -> None:
    script = r"printf 'waiting\n\033[1A\033[K\033[32mReady\033[0m  a < b\n\033[J'"
    done = draw(tmp_path / "picture.svg", "--prompt=make it", script=script)
    assert done.returncode == 0, done.stderr
    assert spans(tmp_path / "picture.svg") == [("$ make it", None), ("Ready", "#7ee787"), ("a < b", None)]


def test_a_command_is_stopped_when_the_text_appears(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' INT; echo almost; echo done; while :; do sleep 0.1; done"
    done = draw(tmp_path / "picture.svg", "--prompt=make it", "--until=done", script=script)
    assert done.returncode == 0, done.stderr
    assert spans(tmp_path / "picture.svg")[1:] == [("almost", None), ("done", None)]


def test_a_failed_command_has_no_picture(tmp_path: Path) -> None:
    done = draw(tmp_path / "picture.svg", script="echo failure; exit 3")
    assert "failure" in done.stderr
    assert not (tmp_path / "picture.svg").exists()


@pytest.mark.parametrize("name", ["dev", "dev-coder", "status"])
def test_pictures_are_those_of_a_run(name: str) -> None:
    assert len(spans(DOCS / "assets" / f"{name}.svg")) > 10
