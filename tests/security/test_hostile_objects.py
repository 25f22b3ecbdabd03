"""Any content in any field of an object is decoded, or rejected with a typed error."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

from coder_k8s.api import CONTROL_PLANE, RESOURCES
from coder_k8s.kube.client import _decode
from coder_k8s.kube.errors import ServerError
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SECRET_METADATA
from coder_k8s.kube.objects import Kind, Manifest, ObjectMeta

Path = tuple[str | int, ...]

KINDS = [*(resource.kind for resource in RESOURCES), SECRET, SECRET_METADATA, DEPLOYMENT]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(2**70) | st.just("\x00\u2028"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LABELS = st.dictionaries(st.text(), st.text() | st.none() | st.integers(), max_size=5)
DEEP = b"[" * 5000 + b"]" * 5000


def sample(of: inspect.Type) -> Any:
    """A value of a type with all its fields."""
    match of:
        case inspect.StructType(fields=fields):
            return {field.encode_name: sample(field.type) for field in fields}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [sample(item)]
        case inspect.DictType(value_type=value):
            return {"a": sample(value)}
        case inspect.UnionType(types=types):
            return sample(next(one for one in types if not isinstance(one, inspect.NoneType)))
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.DateTimeType():
            return "2026-01-02T03:04:05Z"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1
    return "a"


@cache
def complete(kind: Kind[Any]) -> bytes:
    """A valid object of a kind with all its fields."""
    found = sample(inspect.type_info(kind.type)) | {"metadata": sample(inspect.type_info(ObjectMeta))}
    return msgspec.json.encode(found)


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    yield here
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield from paths(inner, (*here, name))


@cache
def paths_of(kind: Kind[Any]) -> list[Path]:
    return list(paths(msgspec.json.decode(complete(kind))))


def put(manifest: Manifest, path: Path, value: Any) -> Any:
    if not path:
        return value
    inside: Any = manifest
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    return manifest


def read(kind: Kind[Any], body: bytes) -> str:
    """The text of a decoded object, or of the error."""
    try:
        return repr(_decode(kind, body))
    except ServerError as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_object_with_every_field_is_decoded(kind: Kind[Any]) -> None:
    assert _decode(kind, complete(kind)).key.name == "a"
    assert len(paths_of(kind)) > 20


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(st.data(), ANYTHING)
def test_any_value_in_any_field(kind: Kind[Any], data: st.DataObject, value: Any) -> None:
    path = data.draw(st.sampled_from(paths_of(kind)))
    changed = put(msgspec.json.decode(complete(kind)), path, value)
    assert "\n" not in read(kind, msgspec.json.encode(changed))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_deep_value_in_any_field(kind: Kind[Any]) -> None:
    for path in paths_of(kind):
        changed = put(msgspec.json.decode(complete(kind)), path, msgspec.Raw(DEEP))
        assert "\n" not in read(kind, msgspec.json.encode(changed))


@given(st.sampled_from(KINDS), LABELS, LABELS)
@example(CONTROL_PLANE, {"": ""}, {"coder.com/paused": 1})
def test_any_labels_and_annotations(kind: Kind[Any], labels: dict[str, Any], annotations: dict[str, Any]) -> None:
    metadata = {"name": "a", "namespace": "b", "labels": labels, "annotations": annotations}
    assert "\n" not in read(kind, msgspec.json.encode({"metadata": metadata, "spec": {}}))


@given(st.sampled_from(KINDS), st.binary())
def test_any_bytes(kind: Kind[Any], body: bytes) -> None:
    assert "\n" not in read(kind, body)
