"""Downloads Go modules, and builds programs from them."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUILD_FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")


class NotDownloaded(Exception):
    """A module cannot be downloaded; the message is the error of Go."""


class NotBuilt(Exception):
    """A program cannot be built; the message is the error of Go."""


@dataclass(frozen=True)
class Downloaded:
    """The files of a downloaded module, which are read-only."""

    folder: Path
    go_mod: Path


def download(go: str, module: str, version: str, folder: Path) -> Downloaded:
    """Download a module into the cache of Go; the command runs in a folder outside any other module."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotDownloaded(_error(done))
    answer = json.loads(done.stdout)
    return Downloaded(Path(answer["Dir"]), Path(answer["GoMod"]))


def build(go: str, folder: Path, package: str, target: Path, flags: Sequence[str]) -> None:
    """Build a package of the module in a folder; the target exists only if the build succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    done = subprocess.run(
        [go, "build", *BUILD_FLAGS, *flags, "-o", unfinished, package],
        cwd=folder,
        env=os.environ | {"CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotBuilt(done.stderr.strip())
    unfinished.replace(target)


def _error(failed: subprocess.CompletedProcess[str]) -> str:
    """Return the error of Go, which `-json` writes to standard output."""
    try:
        return str(json.loads(failed.stdout)["Error"])
    except (ValueError, KeyError):
        return failed.stderr.strip()
