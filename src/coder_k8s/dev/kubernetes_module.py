"""Generates the Go module that builds another version of Kubernetes than the pinned one.

It is derived from go.mod of `k8s.io/kubernetes`, which also has the matching version of etcd, with two changes: it
requires `k8s.io/kubernetes` instead of being that module, and it uses the published staging modules instead of local
folders.
"""

import re
import shutil
from pathlib import Path

from . import go_module

KUBERNETES = "k8s.io/kubernetes"


def write(go: str, version: str, folder: Path) -> None:
    """Download a version (`v1.30.14`) and write its module into a folder. go.mod is written last."""
    downloaded = go_module.download(go, KUBERNETES, version, folder)
    shutil.copyfile(downloaded.folder / "go.sum", folder / "go.sum")
    (folder / "go.sum").chmod(0o644)  # downloaded files are read-only
    unfinished = folder / "go.mod.part"
    unfinished.write_text(derived(downloaded.go_mod.read_text(), version))
    unfinished.replace(folder / "go.mod")


def derived(kubernetes: str, version: str) -> str:
    """Return go.mod of a module that builds the commands of Kubernetes, from go.mod of Kubernetes."""
    module = re.sub(
        rf"^module {KUBERNETES}$",
        f"module coder.com/coder-k8s/kube\n\nrequire (\n\t{KUBERNETES} {version}\n)",
        kubernetes,
        flags=re.MULTILINE,
    )
    published = "v0." + version.removeprefix("v").split(".", 1)[1]
    return re.sub(r"^(\s+)(\S+) => \./staging/\S+$", rf"\1\2 => \2 {published}", module, flags=re.MULTILINE)
