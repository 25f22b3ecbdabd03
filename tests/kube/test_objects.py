"""What decoded objects keep, and what they share in memory."""

import msgspec
import pytest

from coder_k8s.kube.objects import Object, PartialObject, Unstructured

OWNER = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": "u-1", "controller": True}
METADATA = {
    "name": "one",
    "namespace": "space",
    "uid": "u-2",
    "resourceVersion": "7",
    "labels": {"app": "a long label of many objects"},
    "ownerReferences": [OWNER],
    "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {}}}],
    "selfLink": "/unused",
}
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b" * 2000}}
RAW = msgspec.json.encode(MANIFEST)


def test_an_unstructured_object_keeps_its_manifest_without_unused_metadata() -> None:
    kept = {name: value for name, value in METADATA.items() if name not in ("managedFields", "selfLink")}
    live = Unstructured.decode(RAW)
    assert live.manifest == {**MANIFEST, "metadata": kept}
    live.manifest["data"].clear()
    assert live.manifest["data"] == MANIFEST["data"], "a fresh copy each time"


def test_managed_fields_are_kept_without_the_field_sets() -> None:
    [entry] = Unstructured.decode(RAW).metadata.managed_fields
    assert (entry.manager, entry.operation) == ("kubectl", "Update")


def test_the_content_does_not_repeat_the_metadata() -> None:
    live = Unstructured.decode(RAW)
    assert b"metadata" not in live.content
    assert len(live.content) < len(RAW)


@pytest.mark.parametrize("kind", [Object, Unstructured, PartialObject])
def test_common_strings_are_interned(kind: type[Object]) -> None:
    one, other = kind.decode(RAW).metadata, kind.decode(RAW).metadata
    assert one.namespace is other.namespace
    assert one.labels["app"] is other.labels["app"]
    assert one.owner_references[0].uid is other.owner_references[0].uid


def test_a_partial_object_keeps_little_metadata() -> None:
    metadata = {"name": "one", "namespace": "space", "uid": "u-2", "resourceVersion": "7", "annotations": {"a": "b"}}
    one, other = (PartialObject.decode(msgspec.json.encode({"metadata": metadata})).metadata for _ in range(2))
    assert (one.name, one.namespace, one.resource_version) == ("one", "space", "7")
    assert not any((one.uid, one.annotations, one.labels, one.owner_references, one.managed_fields))
    assert one.labels is other.labels
    assert one.owner_references is other.owner_references


def test_empty_metadata_is_shared() -> None:
    raw = msgspec.json.encode({"metadata": {"name": "one"}, "data": {}})
    one, other = Object.decode(raw).metadata, Unstructured.decode(raw).metadata
    for field in ("labels", "annotations", "owner_references", "finalizers"):
        assert not getattr(one, field)
        assert getattr(one, field) is getattr(other, field)
