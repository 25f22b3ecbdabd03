import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from coder_k8s.dev import binaries

# Records each call and writes what `-o` names, after a while in which a second caller could begin.
FAKE_GO = """#!/bin/sh
echo "$*" >> "{calls}"
while [ "$1" != "-o" ]; do shift; done
sleep 0.3
echo built > "$2"
"""


def make_sure_of(*names: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "coder_k8s.dev.binaries", *names]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH without Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache" / "coder-k8s" / "kube"


@pytest.fixture
def go_calls(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a `go` that pretends to build, one a line."""
    calls = tmp_path / "calls"
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO.format(calls=calls))
    go.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.defpath}")
    return calls


def test_given_assets_win(tmp_path: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.program("etcd") == tmp_path / "etcd"
    assert not go_calls.exists()


def test_what_the_assets_lack_is_built(
    tmp_path: Path, cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.program("kubectl") == cache / binaries.version("kubectl") / "kubectl"
    assert go_calls.read_text().rstrip().endswith("k8s.io/kubernetes/cmd/kubectl")


def test_built_once_and_never_again(cache: Path, go_calls: Path) -> None:
    said: list[str] = []
    paths = {binaries.program("kube-apiserver", said.append) for _ in range(2)}

    assert paths == {cache / "v1.36.3" / "kube-apiserver"}
    assert len(go_calls.read_text().splitlines()) == 1
    assert [line.split()[:2] for line in said] == [["building", "kube-apiserver"], ["built", "kube-apiserver"]]


def test_build_tells_the_programs_their_version(cache: Path, go_calls: Path) -> None:
    binaries.program("kube-apiserver")

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in go_calls.read_text()
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in go_calls.read_text()


@pytest.mark.parametrize("name", binaries.SOURCES)
def test_every_program_is_pinned_and_built_in_its_own_module(name: str, cache: Path, go_calls: Path) -> None:
    go = go_calls.parent / "bin" / "go"
    go.write_text(go.read_text().replace("sleep 0.3\necho built", "pwd"))
    source = binaries.SOURCES[name]

    built = binaries.program(name)

    assert built == cache / binaries.version(name) / name
    assert built.read_text().strip() == str(source.module)
    assert go_calls.read_text().rstrip().endswith(source.package)
    assert (source.module / "go.sum").exists()


def test_two_callers_at_once_build_once(cache: Path, go_calls: Path) -> None:
    callers = [make_sure_of("etcd", "kubectl") for _ in range(2)]
    for caller in callers:
        _, errors = caller.communicate(timeout=30)
        assert (caller.returncode, errors) == (0, "")

    assert len(go_calls.read_text().splitlines()) == 2
    assert (cache / binaries.version("etcd") / "etcd").read_text() == "built\n"


def test_failed_build_leaves_nothing_behind(cache: Path, go_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").write_text('#!/bin/sh\necho "no space left" >&2\nexit 1\n')

    with pytest.raises(binaries.BinariesMissing, match="building etcd failed:\nno space left"):
        binaries.program("etcd")
    assert not (cache / binaries.version("etcd") / "etcd").exists()


def test_without_go_the_message_names_both_ways(cache: Path) -> None:
    caller = make_sure_of("etcd")
    output, errors = caller.communicate(timeout=30)

    assert (caller.returncode, output) == (1, "")
    assert "Go on PATH" in errors
    assert "KUBEBUILDER_ASSETS" in errors
    assert len(errors.splitlines()) == 1


def test_unknown_program_is_a_usage_error(cache: Path) -> None:
    caller = make_sure_of("etcd", "kubelet")
    _, errors = caller.communicate(timeout=30)

    assert caller.returncode == 2
    assert "kubelet" in errors
