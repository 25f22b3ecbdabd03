"""The archive that `kubectl coder report` writes."""

import zipfile
from pathlib import Path


def read(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name.removeprefix("coder-k8s-report/"): archive.read(name).decode() for name in archive.namelist()}
