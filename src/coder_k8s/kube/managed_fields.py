"""Upgrades `managedFields` from client-side writes to server-side apply.

Server-side apply removes a field when its last manager stops applying it. An entry of operation `Update`, left by a
create or update, keeps the field. So before the first apply to an object, the `Update` entries of the operator's field
manager become one `Apply` entry.
"""

from typing import Any

from coder_k8s.kube.objects import Manifest, ObjectMeta


def needs_upgrade(meta: ObjectMeta, manager: str) -> bool:
    """Return whether the manager has an `Update` entry."""
    return any(
        entry.manager == manager and entry.operation == "Update" and not entry.subresource
        for entry in meta.managed_fields
    )


def upgrade_operation(meta: ObjectMeta, manager: str) -> list[Manifest]:
    """Return the JSON patch that changes the only entry of the manager to `Apply`; empty if it has several.

    The patch needs the index of the entry only, not its fields. The server rejects it if the object has changed.
    """
    entries = enumerate(meta.managed_fields)
    indexes = [index for index, entry in entries if entry.manager == manager and not entry.subresource]
    if len(indexes) != 1:
        return []
    operation = {"op": "replace", "path": f"/metadata/managedFields/{indexes[0]}/operation", "value": "Apply"}
    return [operation, _unless_changed(meta.resource_version)]


def upgrade_entries(manifest: Manifest, manager: str) -> list[Manifest]:
    """Return the JSON patch that merges all entries of the manager into one `Apply` entry.

    The patch is empty if there are none, for example after another client removed them. The server rejects it if the
    object has changed.
    """
    entries = manifest["metadata"].get("managedFields", [])
    own = [entry for entry in entries if entry["manager"] == manager and not entry.get("subresource")]
    if not own:
        return []
    fields: Manifest = {}
    for entry in own:
        fields = _union(fields, entry.get("fieldsV1", {}))
    applied = {**own[-1], "operation": "Apply", "fieldsV1": fields}
    return [
        {
            "op": "replace",
            "path": "/metadata/managedFields",
            "value": [*(entry for entry in entries if entry not in own), applied],
        },
        _unless_changed(manifest["metadata"]["resourceVersion"]),
    ]


def _unless_changed(version: str) -> Manifest:
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": version}


def _union(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the union of two field sets, which are trees of field names."""
    return {name: _union(one.get(name, {}), other.get(name, {})) for name in sorted({*one, *other})}
