"""Where the program of a real Coder comes from: a file, or a build."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .binaries import BinariesMissing
from .coder_build import LATEST, coder, valid

BUILD = "build"
VERSION = re.compile(r"v(\d+\.\d+\.\d+)")
VERSION_SECONDS = 30


@dataclass(frozen=True)
class CoderSource:
    """A version of Coder, and its program if it need not be built."""

    version: str = LATEST
    program: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the source of a text; raise `BinariesMissing` if the text is none.

        | text                  | source                         |
        |-----------------------|--------------------------------|
        | `build`               | a build of the default version |
        | `build:VERSION`       | a build of that version        |
        | other                 | the path of a program          |
        """
        kind, _, version = text.partition(":")
        if kind == BUILD:
            return cls(valid(version.removeprefix("v") or LATEST))
        program = Path(text).resolve()
        if not os.access(program, os.X_OK) or program.is_dir():
            raise BinariesMissing(f"{text} is not a program: use the path of `coder`, {BUILD}, or {BUILD}:{LATEST}")
        return cls(version_of(program), program)

    def find(self, report: Callable[[str], None]) -> Path:
        """Return the program, and build it if it is missing."""
        return self.program or coder(self.version, report)


def version_of(program: Path) -> str:
    """Return the version of a program, which must be a Coder with a server."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CODER_")}
    command: list[str | Path] = [program, "version", "--output", "json"]
    try:
        done = subprocess.run(command, env=inherited, capture_output=True, timeout=VERSION_SECONDS, check=True)
        reported = json.loads(done.stdout)
        found = VERSION.match(reported["version"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        found = None
    if found is None:
        raise BinariesMissing(f"{program} is not Coder: `coder version --output json` shows no version")
    if reported.get("slim"):
        raise BinariesMissing(f"{program} has no server, because it is a slim build of Coder")
    return found[1]
