"""Generates the Go module that builds another version of Kubernetes than the pinned one.

It is derived from go.mod of `k8s.io/kubernetes`, which also has the matching version of etcd, with two changes: it
requires `k8s.io/kubernetes` instead of being that module, and it uses the published staging modules instead of local
folders.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

KUBERNETES = "k8s.io/kubernetes"


class NotDownloaded(Exception):
    """This version of Kubernetes cannot be downloaded; the message is the error of Go."""


def write(go: str, version: str, folder: Path) -> None:
    """Download a version (`v1.30.14`) and write its module into a folder. go.mod is written last."""
    command = [go, "mod", "download", "-json", f"{KUBERNETES}@{version}"]
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotDownloaded(_error(done))
    downloaded = json.loads(done.stdout)
    shutil.copyfile(Path(downloaded["Dir"]) / "go.sum", folder / "go.sum")
    (folder / "go.sum").chmod(0o644)  # downloaded files are read-only
    unfinished = folder / "go.mod.part"
    unfinished.write_text(derived(Path(downloaded["GoMod"]).read_text(), version))
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


def _error(failed: subprocess.CompletedProcess[str]) -> str:
    """Return the error of Go, which `-json` writes to standard output."""
    try:
        return str(json.loads(failed.stdout)["Error"])
    except (ValueError, KeyError):
        return failed.stderr.strip()
