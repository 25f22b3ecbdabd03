"""What another writer set on an object, by the record that the API server keeps of it."""

import json
from pathlib import Path
from typing import Any

from coder_k8s.kube.objects import Manifest


def recorded(path: Path) -> list[Manifest]:
    """Objects as another operator left them."""
    objects: list[Manifest] = json.loads(path.read_text())
    return objects


def set_by(manager: str, manifest: Manifest) -> Manifest:
    """The part of an object that a manager set, status excepted."""
    entry = next(
        entry
        for entry in manifest["metadata"]["managedFields"]
        if entry["manager"] == manager and not entry.get("subresource")
    )
    chosen: Manifest = _choose(manifest, entry["fieldsV1"])
    return chosen


def _choose(value: Any, fields: dict[str, Any]) -> Any:
    """`f:` names a field, `k:` an item of a list by its keys; where nothing follows, all of the value is meant."""
    if not set(fields) - {"."}:
        return value
    if isinstance(value, list):
        return [_choose(item, inner) for item in value if (inner := _fields_of(item, fields)) is not None]
    return {
        name.removeprefix("f:"): _choose(value[name.removeprefix("f:")], inner)
        for name, inner in fields.items()
        if name != "."
    }


def _fields_of(item: Any, fields: dict[str, Any]) -> dict[str, Any] | None:
    for name, inner in fields.items():
        if name.startswith("k:") and json.loads(name.removeprefix("k:")).items() <= item.items():
            found: dict[str, Any] = inner
            return found
    return None
