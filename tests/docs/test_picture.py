"""Pictures of terminals show what the terminal showed."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS

SPAN = "{http://www.w3.org/2000/svg}tspan"


def spans(picture: Path) -> list[tuple[str | None, str | None]]:
    """Each text with its colour."""
    return [(span.text, span.get("fill")) for span in ElementTree.parse(picture).iter(SPAN)]  # noqa: S314 - our own file


def draw(picture: Path, *options: str, script: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, DOCS / "picture.py", *options, picture, "bash", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_lines_that_were_drawn_anew_and_colours(tmp_path: Path) -> None:
    script = r"printf 'waiting\n\033[1A\033[K\033[32mReady\033[0m  a < b\n\033[J'"
    done = draw(tmp_path / "picture.svg", "--prompt=make it", script=script)
    assert done.returncode == 0, done.stderr
    assert spans(tmp_path / "picture.svg") == [("$ make it", None), ("Ready", "#7ee787"), ("a < b", None)]


def test_a_command_that_does_not_end_is_stopped_when_the_text_is_there(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' INT; echo almost; echo done; while :; do sleep 0.1; done"
    done = draw(tmp_path / "picture.svg", "--prompt=make it", "--until=done", script=script)
    assert done.returncode == 0, done.stderr
    assert spans(tmp_path / "picture.svg")[1:] == [("almost", None), ("done", None)]


def test_a_command_that_fails_has_no_picture(tmp_path: Path) -> None:
    done = draw(tmp_path / "picture.svg", script="echo trouble; exit 3")
    assert "trouble" in done.stderr
    assert not (tmp_path / "picture.svg").exists()


@pytest.mark.parametrize("name", ["dev", "status"])
def test_pictures_are_those_of_a_run(name: str) -> None:
    assert len(spans(DOCS / "assets" / f"{name}.svg")) > 10
