"""CustomResourceDefinitions, generated from the API types."""

from datetime import datetime
from typing import Any

import msgspec

from coder_k8s.api.markers import Column, Resource
from coder_k8s.api.shared import CATEGORY

from .embedded import Json, inline
from .model import Field, Shape, fields
from .rbac import LABELS
from .rules import as_keyword, skip_unchanged, without_rules

TYPES: dict[type, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    list: {"type": "array"},
    dict: {"type": "object"},
}
NOT_SET: tuple[Any, ...] = (None, "", [], {})
REPLICAS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def definition(resource: Resource, embedded: Json) -> Json:
    """Return the CustomResourceDefinition of a kind."""
    kind = resource.kind
    singular = kind.name.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "labels": LABELS},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": [resource.short_name],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(column) for column in resource.columns],
                    "schema": {"openAPIV3Schema": Generator(embedded).root(kind.type)},
                    "subresources": {"status": {}, **({"scale": REPLICAS} if resource.has_pods else {})},
                }
            ],
        },
    }


def schema_default(field: Field) -> Any:
    """Return the default of a field in the schema, or `None`. The default of a nested object is `{}`."""
    if isinstance(field.default, msgspec.Struct):
        if field.default != type(field.default)():
            raise ValueError(f"{field.name}: the default must be the default of its type")
        return {}
    return None if field.default in NOT_SET else msgspec.to_builtins(field.default)


class Generator:
    """Generates the schemas of API types, with the types of Kubernetes inlined."""

    def __init__(self, embedded: Json) -> None:
        self.embedded = embedded

    def root(self, kind: type[msgspec.Struct]) -> Json:
        """Return the schema of a complete object. Status has no defaults, because only the operator sets its fields."""
        parts = {field.name: field for field in fields(kind)}
        described = self.struct(kind, defaults=True)
        status = self.field(parts["status"], defaults=False)
        status.pop("default", None)
        standard = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
        return skip_unchanged(
            {
                "description": " ".join((kind.__doc__ or "").split()),
                **described,
                "properties": {**standard, "spec": described["properties"]["spec"], "status": without_rules(status)},
            }
        )

    def struct(self, struct: type[msgspec.Struct], *, defaults: bool) -> Json:
        known = fields(struct)
        required = sorted(field.name for field in known if field.required)
        return {
            "type": "object",
            **({"required": required} if required else {}),
            "properties": {
                field.name: self.field(field, defaults=defaults) for field in sorted(known, key=lambda it: it.name)
            },
            **as_keyword(getattr(struct, "checks", ())),
        }

    def field(self, field: Field, *, defaults: bool) -> Json:
        schema = {"description": " ".join(field.description.split()), **self.shape(field.shape, defaults=defaults)}
        default = schema_default(field) if defaults else None
        return schema if default is None else {**schema, "default": default}

    def shape(self, shape: Shape, *, defaults: bool) -> Json:
        schema = {**self._bare(shape, defaults=defaults), **shape.keywords}
        return {**schema, **as_keyword(shape.checks)} if shape.checks else schema

    def _bare(self, shape: Shape, *, defaults: bool) -> Json:
        if shape.core:
            return inline(shape.core, self.embedded)
        if shape.struct:
            return self.struct(shape.struct, defaults=defaults)
        schema = dict(TYPES.get(shape.base, {}))
        if shape.item:
            inner = "items" if shape.base is list else "additionalProperties"
            schema[inner] = self.shape(shape.item, defaults=defaults)
        return schema


def _column(column: Column) -> Json:
    wide = {"priority": 1} if column.wide else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **wide}
