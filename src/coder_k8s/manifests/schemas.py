"""JSON schemas of the kinds, for editors and for tools that check manifests without a cluster."""

import json

from .embedded import Json

DRAFT = "http://json-schema.org/draft-07/schema#"
EXTENSION = "x-kubernetes-"
PRESERVE = "x-kubernetes-preserve-unknown-fields"


def path(definition: Json) -> str:
    """Return the path of the schema: group, kind and version, as kubeconform and the CRDs catalog name it."""
    spec = definition["spec"]
    return f"{spec['group']}/{spec['names']['kind'].lower()}_{_version(definition)['name']}.json"


def text(definition: Json, mark: str) -> str:
    """Return the schema as JSON, with the marker of generated files in its first line."""
    body = {"$comment": mark, "$schema": DRAFT, **schema(definition)}
    return json.dumps(body, indent=1).replace("{\n ", "{ ", 1) + "\n"


def schema(definition: Json) -> Json:
    """Return the JSON schema of a CustomResourceDefinition. It rejects unknown fields and has no CEL rules."""
    spec, version = definition["spec"], _version(definition)
    served = _strict(version["schema"]["openAPIV3Schema"])
    identity = {
        "apiVersion": {"type": "string", "const": f"{spec['group']}/{version['name']}"},
        "kind": {"type": "string", "const": spec["names"]["kind"]},
    }
    required = sorted({"apiVersion", "kind", "metadata", *served.get("required", [])})
    return {**served, "required": required, "properties": {**served["properties"], **identity}}


def _version(definition: Json) -> Json:
    [version] = definition["spec"]["versions"]
    return dict(version)


def _strict(schema: Json) -> Json:
    """Return a schema without the keywords of Kubernetes, and with all fields of an object listed."""
    strict = {key: value for key, value in schema.items() if not key.startswith(EXTENSION)}
    for key in ("items", "additionalProperties"):
        if key in schema:
            strict[key] = _strict(schema[key])
    if "properties" in schema:
        strict["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
        if not schema.get(PRESERVE):
            strict["additionalProperties"] = False
    return strict
