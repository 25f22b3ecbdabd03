"""Finds the Go programs for tests and the dev cluster, or builds them from source.

A program in `KUBEBUILDER_ASSETS` (the envtest convention) takes precedence. Other programs are built once per version,
from a Go module next to this file, into a per-user cache. `KUBE_VERSION` (such as `1.30.14`) selects another version of
Kubernetes than the pinned one; its module is generated in the cache. A file lock prevents concurrent builds.
"""

import argparse
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import go_module, kubernetes_module
from .kubernetes_module import KUBERNETES

MODULES = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """The package of a program, and the folder of the Go module that pins its version."""

    folder: str
    package: str
    flags: tuple[str, ...] = ()
    of_kubernetes: bool = False
    """Whether `KUBE_VERSION` selects the version."""


SOURCES = {
    "etcd": Source("kube", "go.etcd.io/etcd/server/v3", of_kubernetes=True),
    "helm": Source("helm", "helm.sh/helm/v4/cmd/helm"),
    "kube-apiserver": Source("kube", "k8s.io/kubernetes/cmd/kube-apiserver", of_kubernetes=True),
    "kube-controller-manager": Source("kube", "k8s.io/kubernetes/cmd/kube-controller-manager", of_kubernetes=True),
    "kube-scheduler": Source("kube", "k8s.io/kubernetes/cmd/kube-scheduler", of_kubernetes=True),
    "kubectl": Source("kube", "k8s.io/kubernetes/cmd/kubectl", of_kubernetes=True),
    "kwok": Source("kube", "sigs.k8s.io/kwok/cmd/kwok"),
    # Without service discovery, whose libraries would be most of the build.
    "promtool": Source("promtool", "github.com/prometheus/prometheus/cmd/promtool", ("-tags=remove_all_sd",)),
}
OR_GIVEN = ", or set KUBEBUILDER_ASSETS to a folder that contains it"


class BinariesMissing(Exception):
    """A program is missing and cannot be built; the message describes what to do."""


def program(name: str, report: Callable[[str], None] = print) -> Path:
    """Return the path of a program, and build it if it is missing."""
    if (given := _given(name)) is not None:
        return given
    built = cache() / version(name) / name
    if not built.exists():
        with lock():
            if not built.exists():  # another process may have built it meanwhile
                _build(name, built, report)
    return built


def version(name: str) -> str:
    """Return the version of a program in its Go module."""
    return _pinned(module(name), SOURCES[name].package)


def module(name: str) -> Path:
    """Return the folder of the Go module of a program, and generate it if it is missing."""
    source = SOURCES[name]
    pinned = MODULES / source.folder
    if not source.of_kubernetes or (wanted := _kube_version()) in ("", _pinned(pinned, KUBERNETES)):
        return pinned
    generated = cache() / wanted / "module"
    if not (generated / "go.mod").exists():
        with lock():
            if not (generated / "go.mod").exists():
                _generate(wanted, generated)
    return generated


def _kube_version() -> str:
    """Return the requested version of Kubernetes; empty for the pinned one."""
    given = os.environ.get("KUBE_VERSION", "")
    if given and not re.fullmatch(r"v?\d+\.\d+\.\d+", given):
        raise BinariesMissing(f"KUBE_VERSION must be a complete version such as 1.30.14, not {given}")
    return given and "v" + given.removeprefix("v")


def _pinned(folder: Path, package: str) -> str:
    pins = folder / "go.mod"
    for required, pinned in re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", pins.read_text(), re.MULTILINE):
        if package == required or package.startswith(required + "/"):
            return str(pinned)
    raise BinariesMissing(f"{pins} pins no version of {package}")


def _generate(kubernetes: str, folder: Path) -> None:
    try:
        kubernetes_module.write(go_command(f"Kubernetes {kubernetes}", OR_GIVEN), kubernetes, folder)
    except go_module.NotDownloaded as refusal:
        raise BinariesMissing(f"KUBE_VERSION: Kubernetes {kubernetes} cannot be downloaded:\n{refusal}") from refusal


def _given(name: str) -> Path | None:
    if folder := os.environ.get("KUBEBUILDER_ASSETS"):
        path = Path(folder) / name
        if path.exists():
            return path
    return None


def cache(kind: str = "kube") -> Path:
    """Return the folder of the user that has the built programs of one kind."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "coder-k8s" / kind


@contextmanager
def lock() -> Iterator[None]:
    """Prevent concurrent builds."""
    path = cache() / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def go_command(needed: str, alternative: str = "") -> str:
    """Return the path of Go, or raise an error that names what needs it."""
    go = shutil.which("go")
    if go is None:
        raise BinariesMissing(
            f"{needed} is missing. Put Go on PATH (https://go.dev/doc/install) to build it once into the cache"
            f"{alternative}."
        )
    return go


def _build(name: str, target: Path, report: Callable[[str], None]) -> None:
    go, folder = go_command(name, OR_GIVEN), module(name)
    report(f"building {name} {version(name)} once, into {target.parent} ...")
    started = time.monotonic()
    source = SOURCES[name]
    # A generated module lacks the checksums of replaced modules; a committed module must not change.
    flags = [*source.flags, *(() if folder.is_relative_to(MODULES) else ("-mod=mod",))]
    try:
        go_module.build(go, folder, source.package, target, [*flags, "-ldflags", _linker_flags(source, folder)])
    except go_module.NotBuilt as failure:
        raise BinariesMissing(f"building {name} failed:\n{failure}") from failure
    report(f"built {name} in {time.monotonic() - started:.0f} s")


def _linker_flags(source: Source, folder: Path) -> str:
    """Return the flags that set the version, because clients depend on `/version` of Kubernetes."""
    if source.folder != "kube":
        return "-s -w"
    kubernetes = _pinned(folder, KUBERNETES)
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": kubernetes, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {package}.{name}={stamps[name]}" for package in packages for name in stamps)])


def main(arguments: Sequence[str]) -> None:
    """Build the named programs if they are missing."""
    parser = argparse.ArgumentParser(prog="python -m coder_k8s.dev.binaries", description=main.__doc__)
    parser.add_argument("name", nargs="+", choices=sorted(SOURCES))
    for name in parser.parse_args(arguments).name:
        try:
            program(name, report=partial(print, flush=True))
        except BinariesMissing as missing:
            sys.exit(str(missing))


if __name__ == "__main__":
    main(sys.argv[1:])
