"""Values for every field of a schema: valid, at the limits, and invalid."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

WRONG: dict[str, Any] = {"string": 7, "integer": "seven", "boolean": "yes", "array": {"a": 1}, "object": ["a"]}
"""An invalid value for each type."""
STRINGS = ("", "x", "x" * 300, "ä b\nc/../d")
INTEGERS = (-1, 0, 1, 2**31 - 1)


class Mutation(NamedTuple):
    """A change of a field of the spec; `path` is the nested field that it is about. `None` removes the field."""

    field: str
    path: str
    value: Any
    given: Mapping[str, Any] = MappingProxyType({})
    """Other fields that this one requires."""

    def applied_to(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**spec, **self.given, self.field: self.value}
        return {name: value for name, value in changed.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.path} = {str(self.value)[:120]}"


def mutations(spec: Schema) -> list[Mutation]:
    """All mutations of a spec, one field at a time."""
    return [
        Mutation(field, path, value)
        for field, schema in spec["properties"].items()
        for path, value in [(field, None), *_values(schema, field)]
    ]


def _values(schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """Values for a field, each with the path of the nested field that it is about."""
    if schema.get("x-kubernetes-int-or-string"):
        yield from ((path, value) for value in (1, "1", "10Mi", "x"))
        return
    kind = schema.get("type", "object")
    yield path, WRONG[kind]
    if "enum" in schema:
        yield from ((path, value) for value in (*schema["enum"], "bogus"))
    elif kind == "string":
        yield from ((path, value) for value in STRINGS)
    elif kind == "integer":
        yield from ((path, value) for value in INTEGERS)
    elif kind == "boolean":
        yield from ((path, value) for value in (True, False))
    elif kind == "array":
        yield path, []
        yield from ((place, [value]) for place, value in _values(schema["items"], f"{path}[]"))
        yield path, [_minimal(schema["items"])] * 2
    else:
        yield from _objects(schema, path)


def _objects(schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    yield path, {}
    if isinstance(schema.get("additionalProperties"), dict):
        yield from ((place, {"a": value}) for place, value in _values(schema["additionalProperties"], f"{path}.*"))
    for name, inner in schema.get("properties", {}).items():
        for place, value in _values(inner, f"{path}.{name}"):
            yield place, {**_minimal(schema), name: value}


def _minimal(schema: Schema) -> Any:
    """A minimal value that the schema allows."""
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "string":
            return "x"
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return []
    return {name: _minimal(schema["properties"][name]) for name in schema.get("required", ())}
