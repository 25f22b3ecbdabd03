"""The API reference pages, one for each kind."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from coder_k8s.api.markers import Check, Core, Resource
from coder_k8s.api.reasons import COMMON_REASONS, CommonCondition, Reason
from coder_k8s.api.shared import CATEGORY

from .crd import TYPES, schema_default
from .embedded import KUBERNETES
from .model import Field, Shape, descriptions, fields

EXAMPLES = Path(__file__).with_name("examples")
CORE_TYPES = f"https://kubernetes.io/docs/reference/generated/kubernetes-api/v{KUBERNETES}/"
NAME_LENGTH = 253
"""The limit of Kubernetes for names, which the page does not show."""
CODE = re.compile(r"`([^`]+)`")
WORDS = {"array": "list", "object": "map"}


def page(resource: Resource) -> str:
    """Return the reference page of a kind, in Markdown."""
    kind = resource.kind
    singular = kind.name.lower()
    spec, status = (next(part for part in fields(kind.type) if part.name == name) for name in ("spec", "status"))
    blocks = [
        f"# {kind.name}",
        paragraph(kind.type.__doc__),
        f"`apiVersion: {kind.api_version}`, `kind: {kind.name}`. For kubectl: `{kind.plural}`, `{singular}` or "
        f"`{resource.short_name}`; `kubectl get {CATEGORY}` lists all kinds.{_scaling(resource)}",
        *_rules(getattr(kind.type, "checks", ())),
        "## Example",
        f"```yaml\n{example(resource)}```",
        "## Spec",
        "Defaults are set when the object is stored, so `kubectl get -o yaml` shows them.",
        *_section("spec", spec, level=2),
        "## Status",
        "Set by the operator.",
        *_section("status", status, level=2),
        "## Conditions",
        "Each condition has `status`, `reason`, `message`, `observedGeneration` and `lastTransitionTime`, which "
        "changes only with `status`.",
        "The [conditions reference](conditions.md) describes what to do for each reason. `Ready`, `Reconciling` and "
        "`Stalled` have the reason of the first condition that is not satisfied, if any.",
        *_conditions(CommonCondition, COMMON_REASONS),
        *_conditions(resource.conditions, resource.reasons),
    ]
    return "\n\n".join(blocks) + "\n"


def _scaling(resource: Resource) -> str:
    if not resource.has_pods:
        return ""
    return f" `kubectl scale {resource.short_name}/<name> --replicas=3` and autoscalers change `spec.replicas`."


def example(resource: Resource) -> str:
    """Return the example of a kind, in YAML."""
    return (EXAMPLES / f"{resource.kind.name.lower()}.yaml").read_text()


def _section(path: str, field: Field, level: int) -> Iterator[str]:
    """Yield the table of an object's fields, and a section for each nested object."""
    struct = _struct(field.shape)
    if struct is None:
        return
    if level > 2:
        yield f"### {path}"
        yield field.description
    yield from _rules(getattr(struct, "checks", ()))
    known = fields(struct)
    if path.startswith("spec"):
        yield table(["field", "type", "default", "allowed", "description"], [_spec_row(path, inner) for inner in known])
    else:
        yield table(["field", "type", "values", "description"], [_status_row(path, inner) for inner in known])
    for inner in known:
        yield from _section(f"{path}.{inner.name}", inner, level + 1)


def table(head: list[str], rows: list[list[str]]) -> str:
    escaped = ([_cell(text) for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *escaped))


def _cell(text: str) -> str:
    """Escape pipes. In a code span, Markdown knows no escapes, so one with a pipe becomes HTML."""
    spans = CODE.sub(lambda span: f"<code>{escape(span[1])}</code>" if "|" in span[1] else span[0], text)
    return spans.replace("|", "&#124;")


def _spec_row(path: str, field: Field) -> list[str]:
    default = schema_default(field)
    shown = "**required**" if field.required else "" if default in (None, {}) else f"`{_literal(default)}`"
    name, kind, allowed, description = _status_row(path, field)
    return [name, kind, shown, allowed, description]


def _status_row(path: str, field: Field) -> list[str]:
    kind = _type(f"{path}.{field.name}", field.shape)
    return [f"`{field.name}`", kind, "; ".join(_allowed(field.shape)), paragraph(field.description)]


def _struct(shape: Shape) -> type[msgspec.Struct] | None:
    return shape.struct or (shape.item.struct if shape.item else None)


def _type(path: str, shape: Shape) -> str:
    if shape.core:
        return f"[{shape.core.name}]({_link(shape.core)})"
    if shape.struct:
        return f"[object](#{path.replace('.', '').lower()})"
    name: str = TYPES[shape.base]["type"] if shape.base in TYPES else "object"
    if shape.item is None:
        return "time" if "format" in TYPES.get(shape.base, {}) else name
    return f"{WORDS[name]} of {_type(path, shape.item)}"


def _link(core: Core) -> str:
    return f"{CORE_TYPES}#{core.name.lower()}-v1-{core.group.replace('.', '-')}"


def _allowed(shape: Shape) -> Iterator[str]:
    """Yield the constraints of a value."""
    keywords = shape.keywords
    if "type" in keywords:
        return
    if "enum" in keywords:
        yield ", ".join(f"`{value}`" for value in keywords["enum"])
    if keywords.get("x-kubernetes-list-type") == "set":
        yield "unique entries"
    yield from _range(keywords.get("minimum"), keywords.get("maximum"), "")
    yield from _range(keywords.get("minItems"), keywords.get("maxItems"), " entries")
    if not shape.checks or keywords.get("maxLength", NAME_LENGTH) < NAME_LENGTH:
        yield from _range(None, keywords.get("maxLength"), " characters")
    yield from (check.message.removeprefix("must be ") for check in shape.checks)
    if shape.item:
        yield from (f"each: {limit}" for limit in _allowed(shape.item))


def _range(least: int | None, most: int | None, unit: str) -> Iterator[str]:
    if least is not None and most is not None:
        yield f"{least}{unit}" if least == most else f"{least} to {most}{unit}"
    elif least is not None:
        yield f"at least {least}{unit}"
    elif most is not None:
        yield f"at most {most}{unit}"


def _rules(checks: tuple[Check, ...]) -> Iterator[str]:
    if checks:
        yield "\n".join(f"- {check.message}" for check in checks)


def _conditions(types: type[StrEnum], reasons: Mapping[StrEnum, tuple[Reason, ...]]) -> Iterator[str]:
    texts = descriptions(types)
    for condition in types:
        yield f"### {condition}"
        yield texts[condition.name]
        yield "\n".join(
            f"- [`{reason}`](conditions.md#{reason.lower()}): {reason.meaning}" for reason in reasons[condition]
        )


def _literal(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, bool) else str(value)


def paragraph(text: str | None) -> str:
    return " ".join((text or "").split())
