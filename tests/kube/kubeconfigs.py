"""kubeconfig files for tests."""

from pathlib import Path
from typing import Any

import yaml


def write(
    path: Path,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> Path:
    """One cluster, one user and the context that joins them, each called `one`."""
    return write_raw(
        path,
        {
            "clusters": [{"name": "one", "cluster": {"server": "https://one.example", **(cluster or {})}}],
            "users": [{"name": "one", "user": user or {}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one", **(context or {})}}],
            "current-context": "one",
        },
    )


def write_raw(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}))
    return path
