import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from coder_k8s.dev import coder_build
from coder_k8s.dev.binaries import BinariesMissing

# What `github.com/coder/coder/v2` publishes of itself, shortened.
GO_MOD = """module github.com/coder/coder/v2

go 1.24.10

replace github.com/fergusstrange/embedded-postgres => github.com/coder/embedded-postgres v1.2.3

require github.com/coder/serpent v0.12.0
"""

# Downloads two versions, and writes what `-o` names.
FAKE_GO = """#!/bin/sh
echo "$*" >> "{calls}"
case "$*" in
mod*coder/v2@v2.36.1|mod*coder/v2@v2.30.0) echo '{{"Dir": "{published}", "GoMod": "{published}/go.mod"}}'; exit 0;;
mod*) echo '{{"Error": "github.com/coder/coder/v2@v2.99.0: not found"}}'; exit 1;;
esac
{build}
while [ "$1" != "-o" ]; do shift; done
pwd > "$2"
"""
REFUSED = """printf '%s\\n' 'go: downloading example.com/one v1.0.0' \
'/root/go/x.go:3:2: example.com/two@v1.0.0: reading https://proxy/two: 403 Forbidden' >&2; exit 1"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH without Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path / "cache" / "coder-k8s" / "coder"


def install_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str = "") -> Path:
    """Put a `go` on PATH that pretends to build, and return the file with its calls."""
    published = tmp_path / "published"
    published.mkdir()
    (published / "go.mod").write_text(GO_MOD)
    (published / "go.sum").write_text("sums\n")
    (published / "go.sum").chmod(0o444)
    go, calls = tmp_path / "bin" / "go", tmp_path / "calls"
    go.parent.mkdir()
    go.write_text(FAKE_GO.format(calls=calls, published=published, build=build))
    go.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.defpath}")
    return calls


def run(*versions: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "coder_k8s.dev.coder_build", *versions]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("2.36.1", "github.com/coder/coder/v2/enterprise/cmd/coder"),
        ("2.30.0", "github.com/coder/coder/v2/cmd/coder"),
    ],
)
def test_version_is_built_once_in_a_generated_module(
    version: str, package: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = install_go(tmp_path, monkeypatch)
    said: list[str] = []
    built = {coder_build.coder(version, said.append) for _ in range(2)}

    assert built == {cache / f"v{version}" / "coder"}
    module = cache / f"v{version}" / "module"
    assert built.pop().read_text().strip() == str(module)
    download, build = calls.read_text().splitlines()
    assert download == f"mod download -json github.com/coder/coder/v2@v{version}"
    assert build.endswith(package)
    assert "-mod=mod" in build
    assert f"-X github.com/coder/coder/v2/buildinfo.tag={version} " in build
    assert [line.split()[:3] for line in said] == [["building", "coder", version], ["built", "coder", version]]


def test_module_keeps_the_replacements_of_coder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path, monkeypatch)
    coder_build.coder("2.36.1", lambda _: None)

    module = cache / "v2.36.1" / "module"
    assert (module / "go.mod").read_text() == GO_MOD.replace(
        "module github.com/coder/coder/v2",
        "module coder.com/coder-k8s/coder\n\nrequire github.com/coder/coder/v2 v2.36.1",
    )
    assert (module / "go.sum").stat().st_mode & stat.S_IWUSR
    assert "github.com/coder/coder/v2/" in (module / "main.go").read_text()


def test_without_go_one_line_says_so(cache: Path) -> None:
    code, output, error = run("2.36.1")
    assert (code, output) == (1, "")
    assert error.startswith("coder 2.36.1 is missing. Put Go on PATH")
    assert len(error.splitlines()) == 1


def test_refused_module_is_one_line(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path, monkeypatch, build=REFUSED)
    code, _, error = run("2.36.1")
    assert code == 1
    assert error.startswith("coder 2.36.1 cannot be built: ")
    assert error.endswith("example.com/two@v1.0.0: reading https://proxy/two: 403 Forbidden\n")
    assert len(error.splitlines()) == 1
    assert not coder_build.cached("2.36.1").exists()


def test_unknown_version_is_named(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path, monkeypatch)
    with pytest.raises(BinariesMissing, match=r"^coder 2\.99\.0 cannot be built: .*@v2\.99\.0: not found$"):
        coder_build.coder("2.99.0", lambda _: None)


@pytest.mark.parametrize("version", ["2.36", "latest", "v2.36.1", "../2.36.1"])
def test_version_must_be_complete(version: str, cache: Path) -> None:
    with pytest.raises(BinariesMissing, match=r"must be complete, such as 2\.36\.1, not"):
        coder_build.coder(version)
