"""Builds `coder` from source, once per version, into the per-user cache.

No registry has the program itself. Its Go module has `replace` lines, so Go builds it only from a module with the same
lines, which is generated in the cache from the downloaded one. The program has the complete API and no web pages.
"""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from . import go_module
from .binaries import BinariesMissing, cache, go_command, lock

MODULE = "github.com/coder/coder/v2"
LATEST = "2.36.1"
AGPL = "2.30.0"
"""A version whose enterprise build needs modules that cannot be downloaded."""

IMPORT = f'package main\n\nimport _ "{MODULE}/buildinfo"\n'
"""A file that makes the generated module use the module of Coder."""


def coder(version: str = LATEST, report: Callable[[str], None] = print) -> Path:
    """Return the path of `coder`, and build it if it is missing."""
    built = cached(valid(version))
    if not built.exists():
        go = go_command(f"coder {version}")  # before the lock, which another build can hold for minutes
        with lock():
            if not built.exists():  # another process may have built it meanwhile
                _build(go, version, built, report)
    return built


def valid(version: str) -> str:
    """Return a version that is complete; raise an error for another one."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise BinariesMissing(f"the version of Coder must be complete, such as {LATEST}, not {version}")
    return version


def cached(version: str) -> Path:
    """Return where the program is, or will be."""
    return cache("coder") / f"v{version}" / "coder"


def builds() -> dict[str, Path]:
    """Return the programs in the cache, by version."""
    found = {path.parent.name.removeprefix("v"): path for path in cache("coder").glob("v*/coder")}
    return dict(sorted(found.items()))


def package(version: str) -> str:
    """Return the package of the program: the one that Coder ships, or the AGPL one."""
    return f"{MODULE}/cmd/coder" if version == AGPL else f"{MODULE}/enterprise/cmd/coder"


def derived(coder: str, version: str) -> str:
    """Return go.mod of a module that builds the commands of Coder, from go.mod of Coder."""
    ours = f"module coder.com/coder-k8s/coder\n\nrequire {MODULE} v{version}"
    return re.sub(rf"^module {MODULE}$", ours, coder, flags=re.MULTILINE)


def _build(go: str, version: str, target: Path, report: Callable[[str], None]) -> None:
    name = f"coder {version}"
    report(f"building {name} once, into {target.parent}; this takes several minutes ...")
    started = time.monotonic()
    folder = target.parent / "module"
    try:
        _write_module(go, version, folder)
        # The tag has no `v`; without the tag, the program calls itself a development version.
        linker = f"-s -w -X {MODULE}/buildinfo.tag={version}"
        go_module.build(go, folder, package(version), target, ("-mod=mod", "-ldflags", linker))
    except (go_module.NotDownloaded, go_module.NotBuilt) as failure:
        raise BinariesMissing(f"{name} cannot be built: {_one_line(str(failure))}") from failure
    report(f"built {name} in {time.monotonic() - started:.0f} s")


def _write_module(go: str, version: str, folder: Path) -> None:
    downloaded = go_module.download(go, MODULE, f"v{version}", folder.parent)
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(derived(downloaded.go_mod.read_text(), version))
    shutil.copyfile(downloaded.folder / "go.sum", folder / "go.sum")
    (folder / "go.sum").chmod(0o644)  # downloaded files are read-only
    (folder / "main.go").write_text(IMPORT)


def _one_line(output: str) -> str:
    """Return the line of an output of Go that has the cause: the last one that is not progress or a heading."""
    lines = [line.strip() for line in output.splitlines()]
    causes = [line for line in lines if line and not line.startswith(("go: downloading", "go: finding", "#"))]
    return causes[-1] if causes else "go failed without a message"


def main(arguments: Sequence[str]) -> None:
    """Build these versions of coder if they are missing."""
    parser = argparse.ArgumentParser(prog="python -m coder_k8s.dev.coder_build", description=main.__doc__)
    parser.add_argument("version", nargs="+")
    for version in parser.parse_args(arguments).version:
        try:
            coder(version, report=partial(print, flush=True))
        except BinariesMissing as missing:
            sys.exit(str(missing))


if __name__ == "__main__":
    main(sys.argv[1:])
