"""Moves fields that we wrote in the old way to server-side apply.

Every writer of an object has an entry in `managedFields`. A field goes away when its last owner stops sending it, but
only an entry of operation `Apply` can stop sending: what a create or an update of ours left behind as `Update` stays
for ever. So before the first apply to such an object the entries of our own name become one of operation `Apply`.
"""

from typing import Any

from coder_k8s.kube.objects import Manifest, ObjectMeta


def needs_upgrade(meta: ObjectMeta, manager: str) -> bool:
    """Whether fields of ours are held by something else than server-side apply."""
    return any(
        entry.manager == manager and entry.operation == "Update" and not entry.subresource
        for entry in meta.managed_fields
    )


def upgrade_operation(meta: ObjectMeta, manager: str) -> list[Manifest]:
    """The JSON patch that makes our only entry an `Apply` entry, refused if the object changed meanwhile.

    It takes no more than the place of the entry; empty when there are several.
    """
    entries = enumerate(meta.managed_fields)
    ours = [place for place, entry in entries if entry.manager == manager and not entry.subresource]
    if len(ours) != 1:
        return []
    operation = {"op": "replace", "path": f"/metadata/managedFields/{ours[0]}/operation", "value": "Apply"}
    return [operation, _unless_changed(meta.resource_version)]


def upgrade_entries(manifest: Manifest, manager: str) -> list[Manifest]:
    """The JSON patch that gives all our fields to one `Apply` entry, refused if the object changed meanwhile.

    It is empty when we own no field, for instance after another client removed our entries.
    """
    entries = manifest["metadata"].get("managedFields", [])
    ours = [entry for entry in entries if entry["manager"] == manager and not entry.get("subresource")]
    if not ours:
        return []
    fields: Manifest = {}
    for entry in ours:
        fields = _union(fields, entry.get("fieldsV1", {}))
    applied = {**ours[-1], "operation": "Apply", "fieldsV1": fields}
    return [
        {
            "op": "replace",
            "path": "/metadata/managedFields",
            "value": [*(entry for entry in entries if entry not in ours), applied],
        },
        _unless_changed(manifest["metadata"]["resourceVersion"]),
    ]


def _unless_changed(version: str) -> Manifest:
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": version}


def _union(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Field sets are trees of names; their union is the merge of the trees."""
    return {name: _union(one.get(name, {}), other.get(name, {})) for name in sorted({*one, *other})}
