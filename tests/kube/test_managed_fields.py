"""Which entries of `managedFields` are upgraded to server-side apply, and how."""

import pytest

from coder_k8s.kube.managed_fields import needs_upgrade, upgrade_entries, upgrade_operation
from coder_k8s.kube.objects import ManagedFields, Manifest, ObjectMeta

OPERATOR, KUBECTL = "coder-k8s", "kubectl"
APPLY, UPDATE = ManagedFields(OPERATOR, "Apply"), ManagedFields(OPERATOR, "Update")
STATUS = ManagedFields(OPERATOR, "Update", "status")
OTHER = ManagedFields(KUBECTL, "Update")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((), False),
        ((APPLY,), False),
        ((UPDATE,), True),
        ((APPLY, UPDATE), True),
        ((STATUS,), False),
        ((OTHER,), False),
        ((OTHER, APPLY), False),
    ],
)
def test_needs_upgrade(entries: tuple[ManagedFields, ...], expected: bool) -> None:
    assert needs_upgrade(ObjectMeta(managed_fields=entries), OPERATOR) is expected


@pytest.mark.parametrize(
    ("entries", "index"),
    [
        ((), None),
        ((UPDATE,), 0),
        ((OTHER, UPDATE, STATUS), 1),
        ((STATUS, OTHER, UPDATE), 2),
        ((APPLY, UPDATE), None),
        ((OTHER, STATUS), None),
    ],
)
def test_upgrade_operation(entries: tuple[ManagedFields, ...], index: int | None) -> None:
    expected = [
        {"op": "replace", "path": f"/metadata/managedFields/{index}/operation", "value": "Apply"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    meta = ObjectMeta(managed_fields=entries, resource_version="7")
    assert upgrade_operation(meta, OPERATOR) == ([] if index is None else expected)


def entry(manager: str, operation: str, fields: Manifest, **more: str) -> Manifest:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


def test_upgrade_entries() -> None:
    other = entry(KUBECTL, "Update", {"f:metadata": {}})
    status = entry(OPERATOR, "Update", {"f:status": {}}, subresource="status")
    first = entry(OPERATOR, "Apply", {"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}}, time="1")
    bare = {"manager": OPERATOR, "operation": "Update"}
    last = entry(OPERATOR, "Update", {"f:spec": {"f:b": {"f:d": {}}}, "f:data": {}}, time="2")
    manifest: Manifest = {"metadata": {"resourceVersion": "7", "managedFields": [first, other, bare, status, last]}}
    union: Manifest = {"f:data": {}, "f:spec": {"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}}}
    assert upgrade_entries(manifest, OPERATOR) == [
        {
            "op": "replace",
            "path": "/metadata/managedFields",
            "value": [other, status, entry(OPERATOR, "Apply", union, time="2")],
        },
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
    ]


@pytest.mark.parametrize("entries", [{}, {"managedFields": []}, {"managedFields": [entry(KUBECTL, "Update", {})]}])
def test_upgrade_entries_without_the_manager(entries: Manifest) -> None:
    assert upgrade_entries({"metadata": {"resourceVersion": "7", **entries}}, OPERATOR) == []
