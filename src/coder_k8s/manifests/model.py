"""A model of the API types for the generators: every field with its shape, default and description."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from coder_k8s.api.markers import Check, Core, Schema


@dataclass(frozen=True)
class Shape:
    """A parsed annotation; `item` is the shape of the elements of a list or the values of a map."""

    base: type
    item: "Shape | None" = None
    core: Core | None = None
    checks: tuple[Check, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def struct(self) -> "type[msgspec.Struct] | None":
        """The API type whose fields the schema lists, if any."""
        return self.base if issubclass(self.base, msgspec.Struct) and "type" not in self.keywords else None


@dataclass(frozen=True)
class Field:
    """A field of an API type, with its wire name."""

    name: str
    shape: Shape
    required: bool
    default: Any
    description: str


def shape(annotation: Any) -> Shape:
    """Parse an annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _with_markers(shape(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        return shape(next(argument for argument in arguments if argument is not types.NoneType))
    if origin in (list, dict):
        return Shape(origin, None if arguments[-1] is Any else shape(arguments[-1]))
    if annotation in (str, int, bool, datetime) or issubclass(annotation, msgspec.Struct):
        return Shape(annotation)
    raise TypeError(f"no schema for {annotation}")


def _with_markers(bare: Shape, markers: tuple[Any, ...]) -> Shape:
    keywords = dict(bare.keywords)
    for marker in markers:
        if isinstance(marker, Schema):
            keywords |= marker.keywords
    cores = [marker for marker in markers if isinstance(marker, Core)]
    checks = tuple(marker for marker in markers if isinstance(marker, Check))
    return Shape(bare.base, bare.item, next(iter(cores), bare.core), bare.checks + checks, keywords)


def fields(struct: type[msgspec.Struct]) -> list[Field]:
    """Return the fields of an API type: its own in source order, then the inherited ones."""
    texts = descriptions(struct)
    inherited = {name for base in struct.__bases__ for name in getattr(base, "__struct_fields__", ())}
    found = sorted(msgspec.structs.fields(struct), key=lambda item: item.name in inherited)
    return [
        Field(item.encode_name, shape(item.type), item.required, _default(item), texts[item.name])
        for item in found
        if item.name != "metadata"
    ]


def _default(item: msgspec.structs.FieldInfo) -> Any:
    if item.required:
        return None
    return item.default if item.default_factory is msgspec.NODEFAULT else item.default_factory()


def descriptions(cls: type) -> dict[str, str]:
    """Return the description of each attribute of a class, by name. It is inherited from the base class if missing."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith(("coder_k8s.api", cls.__module__)):
            texts |= _own_descriptions(base)
    return texts


@cache
def _own_descriptions(cls: type) -> dict[str, str]:
    source = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    definition = next(node for node in ast.walk(source) if isinstance(node, ast.ClassDef))
    texts = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = inspect.cleandoc(text)
    return texts


def structs(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield an API type and the types of its fields, recursively."""
    yield struct
    for item in fields(struct):
        for inner in (item.shape, item.shape.item):
            if inner and inner.struct:
                yield from structs(inner.struct)


def cores(struct: type[msgspec.Struct]) -> set[Core]:
    """Return every Kubernetes type that an API type embeds."""
    shapes = [item.shape for part in structs(struct) for item in fields(part)]
    return {inner.core for each in shapes for inner in (each, each.item) if inner and inner.core}
