"""What is kept of an object, and how little of it twice."""

import msgspec
import pytest

from coder_k8s.kube.objects import Object, PartialObject, Unstructured

OWNER = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "boss", "uid": "u-1", "controller": True}
METADATA = {
    "name": "one",
    "namespace": "space",
    "uid": "u-2",
    "resourceVersion": "7",
    "labels": {"app": "a long label of many objects"},
    "ownerReferences": [OWNER],
    "managedFields": [{"manager": "somebody", "operation": "Update", "fieldsV1": {"f:data": {}}}],
    "selfLink": "nobody reads this",
}
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b" * 2000}}
RAW = msgspec.json.encode(MANIFEST)


def test_a_child_is_shown_as_it_came_but_for_what_nobody_reads() -> None:
    kept = {name: value for name, value in METADATA.items() if name not in ("managedFields", "selfLink")}
    child = Unstructured.decode(RAW)
    assert child.manifest == {**MANIFEST, "metadata": kept}
    child.manifest["data"].clear()
    assert child.manifest["data"] == MANIFEST["data"], "a fresh copy each time"


def test_who_managed_fields_is_kept_without_the_fields() -> None:
    [entry] = Unstructured.decode(RAW).metadata.managed_fields
    assert (entry.manager, entry.operation) == ("somebody", "Update")


def test_the_content_of_a_child_does_not_repeat_its_metadata() -> None:
    child = Unstructured.decode(RAW)
    assert b"metadata" not in child.content
    assert len(child.content) < len(RAW)


@pytest.mark.parametrize("kind", [Object, Unstructured, PartialObject])
def test_texts_that_objects_have_in_common_are_held_once(kind: type[Object]) -> None:
    one, other = kind.decode(RAW).metadata, kind.decode(RAW).metadata
    assert one.namespace is other.namespace
    assert one.labels["app"] is other.labels["app"]
    assert one.owner_references[0].uid is other.owner_references[0].uid


def test_of_a_stranger_next_to_nothing_is_kept() -> None:
    metadata = {"name": "one", "namespace": "space", "uid": "u-2", "resourceVersion": "7", "annotations": {"a": "b"}}
    one, other = (PartialObject.decode(msgspec.json.encode({"metadata": metadata})).metadata for _ in range(2))
    assert (one.name, one.namespace, one.resource_version) == ("one", "space", "7")
    assert not any((one.uid, one.annotations, one.labels, one.owner_references, one.managed_fields))
    assert one.labels is other.labels
    assert one.owner_references is other.owner_references
