import sys
from pathlib import Path

import pytest

from coder_k8s.dev.binaries import BinariesMissing
from coder_k8s.dev.coder_source import CoderSource


def program(folder: Path, script: str) -> Path:
    path = folder / "coder"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"), [("build", "2.36.1"), ("build:2.30.0", "2.30.0"), ("build:v2.30.0", "2.30.0")]
)
def test_build(text: str, version: str) -> None:
    assert CoderSource.parse(text) == CoderSource(version)


def test_program_reports_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODER_URL", "https://coder.example.com")  # of another Coder
    checks = '[ "$*" = "version --output json" ] && [ -z "$CODER_URL" ]'
    path = program(tmp_path, checks + """ && echo '{"version": "v2.33.4+abc", "slim": false}'""")
    source = CoderSource.parse(str(path))
    assert source == CoderSource("2.33.4", path)
    assert source.find(lambda _: None) == path


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo Coder v2.33.4", "shows no version"),
        ("exit 1", "shows no version"),
        ("echo '[]'", "shows no version"),
        ("""echo '{"version": "v2.33.4", "slim": true}'""", "has no server, because it is a slim build of Coder"),
    ],
)
def test_program_must_be_a_coder_with_a_server(script: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(BinariesMissing, match=error):
        CoderSource.parse(str(program(tmp_path, script)))


@pytest.mark.parametrize("text", ["/nowhere/coder", str(Path(sys.executable).parent), "builds"])
def test_other_text_is_no_program(text: str) -> None:
    with pytest.raises(BinariesMissing, match=r"is not a program: use the path of `coder`, build, or build:2\.36\.1"):
        CoderSource.parse(text)


def test_incomplete_version_is_rejected() -> None:
    with pytest.raises(BinariesMissing, match="must be complete"):
        CoderSource.parse("build:2.36")
