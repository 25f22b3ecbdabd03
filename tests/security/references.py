"""Finds every field in the CRDs that refers to a Secret, a ConfigMap or a control plane."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.installation import CONFIG
from tests.support.manifests import parse

SUBJECTS = ("secret", "configmap", "controlplaneref")
NEARBY = "nearby"
"""The value of all other references: a Secret and a control plane with this name exist in the same namespace."""
CODER = "coder.example.com"
DATABASE_URL = "CODER_PG_CONNECTION_URL"
FILLERS = {"coderURL": f"http://{CODER}", "interval": "1h"}
PROXIES = "coderworkspaceproxies"
TEMPLATES = "codertemplates"
WAYS = ("bootstrap", "proxySessionTokenSecretRef", "controlPlaneRef")

Schema = dict[str, Any]


class Reference(NamedTuple):
    """A field: the plural of its kind and its path; `[]` is a list item."""

    plural: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.plural}:{'.'.join(self.path)}"

    def spec(self, schema: Schema, value: str) -> Schema:
        """A minimal spec with this value."""
        made: Schema = _build(schema, self.path, value)
        if self.path[0] == "extraEnv":
            made["extraEnv"][0]["name"] = DATABASE_URL  # the operator reads this variable
        if self.plural == PROXIES:
            if self.path[0] not in WAYS:
                made["controlPlaneRef"] = {"name": NEARBY}
            if self.path[0] == "proxySessionTokenSecretRef":
                made["primaryAccessURL"] = FILLERS["coderURL"]
        if self.plural == TEMPLATES and self.path[0] != "source":
            made["source"] = {"inline": {"files": {"main.tf": ""}}}
        return made


def schema(plural: str) -> Schema:
    """The schema of the spec."""
    definition = parse((CONFIG / "crd" / f"{plural}.yaml").read_text())
    found: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def references(plural: str, schema: Schema) -> list[Reference]:
    return [Reference(plural, path) for path in _texts(schema) if _refers(path)]


def _texts(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in schema.get("properties", {}).items():
        yield from _texts(inner, (*path, name))
    if "items" in schema:
        yield from _texts(schema["items"], (*path, "[]"))
    if schema.get("type") == "string":
        yield path


def _refers(path: tuple[str, ...]) -> bool:
    last = next(part for part in reversed(path) if part != "[]").lower()
    subject = any(word in part.lower() for part in path for word in SUBJECTS)
    return subject and ("name" in last or "ref" in last)


def _build(schema: Schema, path: tuple[str, ...], value: str) -> Any:
    if not path:
        return value
    first, *rest = path
    if first == "[]":
        return [_build(schema["items"], tuple(rest), value)]
    return _required(schema) | {first: _build(schema["properties"][first], tuple(rest), value)}


def _required(schema: Schema) -> Schema:
    return {name: _filled(name, schema["properties"][name]) for name in schema.get("required", ())}


def _filled(name: str, schema: Schema) -> Any:
    match schema.get("type"):
        case "object":
            return _required(schema)
        case "array":
            return [_filled(name, schema["items"])] * schema.get("minItems", 0)
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return FILLERS.get(name, NEARBY)
