"""The Go module that builds another version of Kubernetes than the one that is pinned beside this file.

It is the downloaded go.mod of `k8s.io/kubernetes` itself, which also names the etcd that belongs to it. Two things
differ: it requires `k8s.io/kubernetes` instead of being it, and the staging modules, which Kubernetes replaces by local
folders, are replaced by what is published of them.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

KUBERNETES = "k8s.io/kubernetes"


class NotDownloaded(Exception):
    """This version of Kubernetes cannot be downloaded; the message has the words of Go."""


def write(go: str, version: str, folder: Path) -> None:
    """Download a version (`v1.30.14`) and write its module into a folder; a go.mod there means that it is complete."""
    command = [go, "mod", "download", "-json", f"{KUBERNETES}@{version}"]
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotDownloaded(_words(done))
    downloaded = json.loads(done.stdout)
    shutil.copyfile(Path(downloaded["Dir"]) / "go.sum", folder / "go.sum")
    (folder / "go.sum").chmod(0o644)  # what Go has downloaded is read-only
    unfinished = folder / "go.mod.part"
    unfinished.write_text(derived(Path(downloaded["GoMod"]).read_text(), version))
    unfinished.replace(folder / "go.mod")


def derived(kubernetes: str, version: str) -> str:
    """The go.mod of a module that builds the commands of Kubernetes, from the go.mod of Kubernetes."""
    module = re.sub(
        rf"^module {KUBERNETES}$",
        f"module coder.com/coder-k8s/kube\n\nrequire (\n\t{KUBERNETES} {version}\n)",
        kubernetes,
        flags=re.MULTILINE,
    )
    published = "v0." + version.removeprefix("v").split(".", 1)[1]
    return re.sub(r"^(\s+)(\S+) => \./staging/\S+$", rf"\1\2 => \2 {published}", module, flags=re.MULTILINE)


def _words(failed: subprocess.CompletedProcess[str]) -> str:
    """With `-json` Go reports what failed on its standard output."""
    try:
        return str(json.loads(failed.stdout)["Error"])
    except (ValueError, KeyError):
        return failed.stderr.strip()
