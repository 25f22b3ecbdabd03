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
    monkeypatch.delenv("KUBE_VERSION", raising=False)
    return tmp_path / "cache" / "coder-k8s" / "kube"


@pytest.fixture
def go_calls(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a fake `go`, one per line."""
    calls = tmp_path / "calls"
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO.format(calls=calls))
    go.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.defpath}")
    return calls


def test_given_assets_are_used(tmp_path: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.program("etcd") == tmp_path / "etcd"
    assert not go_calls.exists()


def test_missing_assets_are_built(tmp_path: Path, cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.program("kubectl") == cache / binaries.version("kubectl") / "kubectl"
    assert go_calls.read_text().rstrip().endswith("k8s.io/kubernetes/cmd/kubectl")


def test_a_program_is_built_once(cache: Path, go_calls: Path) -> None:
    messages: list[str] = []
    paths = {binaries.program("kube-apiserver", messages.append) for _ in range(2)}

    assert paths == {cache / "v1.36.3" / "kube-apiserver"}
    assert len(go_calls.read_text().splitlines()) == 1
    assert [line.split()[:2] for line in messages] == [["building", "kube-apiserver"], ["built", "kube-apiserver"]]


def test_a_program_is_built_with_its_version(cache: Path, go_calls: Path) -> None:
    binaries.program("kube-apiserver")

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in go_calls.read_text()
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in go_calls.read_text()


@pytest.mark.parametrize("name", binaries.SOURCES)
def test_every_program_is_pinned_and_built_in_its_own_module(name: str, cache: Path, go_calls: Path) -> None:
    go = go_calls.parent / "bin" / "go"
    go.write_text(go.read_text().replace("sleep 0.3\necho built", "pwd"))

    built = binaries.program(name)

    assert built == cache / binaries.version(name) / name
    assert built.read_text().strip() == str(binaries.module(name))
    assert go_calls.read_text().rstrip().endswith(binaries.SOURCES[name].package)
    assert "-mod=mod" not in go_calls.read_text()
    assert (binaries.module(name) / "go.sum").exists()


def test_concurrent_callers_build_once(cache: Path, go_calls: Path) -> None:
    callers = [make_sure_of("etcd", "kubectl") for _ in range(2)]
    for caller in callers:
        _, errors = caller.communicate(timeout=30)
        assert (caller.returncode, errors) == (0, "")

    assert len(go_calls.read_text().splitlines()) == 2
    assert (cache / binaries.version("etcd") / "etcd").read_text() == "built\n"


def test_a_failed_build_leaves_no_files(cache: Path, go_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").write_text('#!/bin/sh\necho "no space left" >&2\nexit 1\n')

    with pytest.raises(binaries.BinariesMissing, match="building etcd failed:\nno space left"):
        binaries.program("etcd")
    assert not (cache / binaries.version("etcd") / "etcd").exists()


def test_the_error_without_go(cache: Path) -> None:
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


# What `k8s.io/kubernetes` publishes of itself, shortened.
GO_MOD = """module k8s.io/kubernetes

go 1.22.0

require (
\tgo.etcd.io/etcd/client/v3 v3.5.10
\tk8s.io/api v0.0.0
)

require (
\tgo.etcd.io/etcd/server/v3 v3.5.10 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


@pytest.fixture
def other_kubernetes(tmp_path: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`KUBE_VERSION`, and a fake `go` that downloads only this version."""
    published = tmp_path / "published"
    published.mkdir()
    (published / "go.mod").write_text(GO_MOD)
    (published / "go.sum").write_text("sums\n")
    (published / "go.sum").chmod(0o444)
    answer = f'{{"Dir": "{published}", "GoMod": "{published}/go.mod"}}'
    go = tmp_path / "bin" / "go"
    download = f"""case "$*" in
mod*kubernetes@v1.30.14) echo '{answer}'; exit 0;;
mod*) echo '{{"Error": "unknown revision"}}'; exit 1;;
esac
"""
    record, build = go.read_text().split("while", 1)
    go.write_text(f"{record}{download}while{build}")
    monkeypatch.setenv("KUBE_VERSION", "1.30.14")


@pytest.mark.usefixtures("other_kubernetes")
def test_another_kubernetes_is_built_once_with_its_etcd(cache: Path, go_calls: Path) -> None:
    for _ in range(2):
        assert binaries.program("kube-apiserver") == cache / "v1.30.14" / "kube-apiserver"
        assert binaries.program("etcd") == cache / "v3.5.10" / "etcd"

    download, apiserver, etcd = go_calls.read_text().splitlines()
    assert download == "mod download -json k8s.io/kubernetes@v1.30.14"
    assert "-mod=mod" in apiserver
    assert "-X k8s.io/component-base/version.gitVersion=v1.30.14" in apiserver
    assert etcd.endswith("go.etcd.io/etcd/server/v3")


@pytest.mark.usefixtures("other_kubernetes")
def test_the_generated_module_uses_published_staging_modules(cache: Path) -> None:
    folder = binaries.module("kube-apiserver")

    assert folder == cache / "v1.30.14" / "module"
    assert (folder / "go.mod").read_text() == (
        GO_MOD.replace(
            "module k8s.io/kubernetes", "module coder.com/coder-k8s/kube\n\nrequire (\n\tk8s.io/kubernetes v1.30.14\n)"
        )
        .replace("./staging/src/k8s.io/api", "k8s.io/api v0.30.14")
        .replace("./staging/src/k8s.io/client-go", "k8s.io/client-go v0.30.14")
    )
    assert (folder / "go.sum").stat().st_mode & stat.S_IWUSR


@pytest.mark.usefixtures("other_kubernetes")
@pytest.mark.parametrize("name", ["kwok", "helm", "promtool"])
def test_other_programs_keep_their_pinned_version(name: str) -> None:
    assert binaries.module(name).is_relative_to(binaries.MODULES)


@pytest.mark.parametrize("written", ["1.36.3", "v1.36.3"])
def test_the_pinned_kubernetes_needs_no_generated_module(
    written: str, cache: Path, go_calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_VERSION", written)

    assert binaries.module("kube-apiserver") == binaries.MODULES / "kube"
    assert not go_calls.exists()


@pytest.mark.usefixtures("other_kubernetes")
def test_the_error_names_a_version_that_cannot_be_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_VERSION", "1.99.0")

    with pytest.raises(binaries.BinariesMissing, match=r"Kubernetes v1\.99\.0 cannot be downloaded:\nunknown revision"):
        binaries.program("etcd")


@pytest.mark.parametrize("given", ["1.30", "latest", "../1.30.14"])
def test_an_incomplete_version_is_rejected(given: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_VERSION", given)

    with pytest.raises(binaries.BinariesMissing, match=r"KUBE_VERSION must be a complete version such as 1\.30\.14"):
        binaries.program("etcd")
