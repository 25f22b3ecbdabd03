"""Reads what another writer set on an object, from its managedFields."""

import json
from pathlib import Path
from typing import Any

from coder_k8s.kube.objects import Manifest


def recorded(path: Path) -> list[Manifest]:
    """Load objects that another operator created."""
    objects: list[Manifest] = json.loads(path.read_text())
    return objects


def set_by(manager: str, manifest: Manifest) -> Manifest:
    """The part of an object that a field manager set, without the status."""
    entry = next(
        entry
        for entry in manifest["metadata"]["managedFields"]
        if entry["manager"] == manager and not entry.get("subresource")
    )
    selected: Manifest = _select(manifest, entry["fieldsV1"])
    return selected


def _select(value: Any, fields: dict[str, Any]) -> Any:
    """Select fields of a value. `f:` is a field, `k:` a list item by its keys; an empty set selects the whole value."""
    if not set(fields) - {"."}:
        return value
    if isinstance(value, list):
        return [_select(item, inner) for item in value if (inner := _fields_of(item, fields)) is not None]
    return {
        name.removeprefix("f:"): _select(value[name.removeprefix("f:")], inner)
        for name, inner in fields.items()
        if name != "."
    }


def _fields_of(item: Any, fields: dict[str, Any]) -> dict[str, Any] | None:
    for name, inner in fields.items():
        if name.startswith("k:") and json.loads(name.removeprefix("k:")).items() <= item.items():
            found: dict[str, Any] = inner
            return found
    return None
