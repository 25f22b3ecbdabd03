"""The schemas of the Kubernetes types that the API types embed.

An API server serves them under `/openapi/v3`. One file per Kubernetes version contains those that are needed, without
descriptions, enums (a newer cluster may have more values), defaults (the API server sets them in the child) and patch
strategies. To update the file:

    kubectl proxy --port=8001 &
    python -m coder_k8s.manifests.embedded http://127.0.0.1:8001
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from coder_k8s.api import RESOURCES
from coder_k8s.api.markers import Core

from .model import cores

Json = dict[str, Any]

KUBERNETES = "1.36"
FILE = Path(__file__).with_name(f"kubernetes-{KUBERNETES}.json")
PACKAGES = {
    "core": ("api/v1", "io.k8s.api.core.v1"),
    "rbac.authorization.k8s.io": ("apis/rbac.authorization.k8s.io/v1", "io.k8s.api.rbac.v1"),
}
KEPT = ("type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")

QUANTITY: Json = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}
INT_OR_STRING: Json = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
}


def load() -> Json:
    """Return the schemas in the file, by full name."""
    definitions: Json = json.loads(FILE.read_text())
    return definitions


def inline(core: Core, definitions: Json) -> Json:
    """Return a schema with all its references inlined."""
    return _inline(definitions[full_name(core)], definitions)


def select(served: Json, wanted: Iterable[str]) -> Json:
    """Return the wanted schemas of those that an API server serves, and those they refer to, by full name."""
    selected: Json = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in selected:
            selected[name] = SPECIAL.get(name) or _reduce(served[name])
            waiting += _references(selected[name])
    return dict(sorted(selected.items()))


def full_name(core: Core) -> str:
    return f"{PACKAGES[core.group][1]}.{core.name}"


def _reduce(schema: Json) -> Json:
    """Return a schema with only the keywords that a CRD needs."""
    if (target := _target(schema)) is not None:
        return {"$ref": target}
    reduced: Json = {key: schema[key] for key in KEPT if key in schema}
    for key in ("items", "additionalProperties"):
        if key in schema:
            reduced[key] = _reduce(schema[key])
    if "properties" in schema:
        reduced["properties"] = {name: _reduce(value) for name, value in sorted(schema["properties"].items())}
    elif reduced.get("type") == "object" and "additionalProperties" not in reduced:
        reduced["x-kubernetes-preserve-unknown-fields"] = True
    return reduced


def _target(schema: Json) -> str | None:
    """Return the name that a schema refers to. A reference next to a description or default is inside `allOf`."""
    reference: str | None = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ())), None)
    return reference.rpartition("/")[2] if reference else None


def _references(schema: Json) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"]
    inner = [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for value in (*inner, *schema.get("properties", {}).values()):
        yield from _references(value)


def _inline(schema: Json, definitions: Json) -> Json:
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"]], definitions)
    inlined = dict(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            inlined[key] = _inline(schema[key], definitions)
    if "properties" in schema:
        inlined["properties"] = {name: _inline(value, definitions) for name, value in schema["properties"].items()}
    return inlined


def needed() -> list[str]:
    """Return the full names of all Kubernetes types that the API types embed."""
    return [full_name(core) for resource in RESOURCES for core in cores(resource.kind.type)]


def main(url: str) -> None:
    served: Json = {}
    for path, _ in PACKAGES.values():
        with urlopen(f"{url}/openapi/v3/{path}") as answer:  # noqa: S310 - the user's own cluster
            served |= json.load(answer)["components"]["schemas"]
    FILE.write_text(json.dumps(select(served, needed()), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
