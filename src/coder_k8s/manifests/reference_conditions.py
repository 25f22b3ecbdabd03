"""The reference of conditions and events: what the operator says about objects, and what to do about it."""

from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum

from coder_k8s.api import RESOURCES
from coder_k8s.api.conditions import CommonCondition
from coder_k8s.api.events import EVENTS
from coder_k8s.api.reasons import REASONS

from .model import descriptions
from .reference import table

EVERY_KIND = "every kind"


def conditions_page() -> str:
    """The conditions of each kind, then each reason under a heading of its own, which makes its anchor."""
    blocks = [
        "# Conditions",
        "What `kubectl describe` shows under `Conditions`. A link to a reason is `conditions.md#` and the reason in "
        "lower case, such as `conditions.md#secretmissing`.",
        f"## Of {EVERY_KIND}",
        "These have a reason of the table while there is nothing more to say, else that of the part that is not as it "
        "should be.",
        _overview(CommonCondition),
    ]
    for resource in RESOURCES:
        blocks += [f"## Of a {resource.kind.name}", _overview(resource.conditions)]
    blocks += ["## Reasons", *_reasons()]
    return "\n\n".join(blocks) + "\n"


def events_page() -> str:
    """Every event, with what to do about it."""
    rows = [
        [
            f"`{event.reason}`",
            event.type,
            ", ".join(kind.name for kind in event.kinds),
            event.when,
            event.remedy,
        ]
        for event in EVENTS
    ]
    blocks = [
        "# Events",
        "What happened to an object, as `kubectl describe` and `kubectl events` show it. An event that repeats itself "
        "is one object with a count.",
        table(["reason", "type", "kind", "when", "what to do"], rows),
        "When an object becomes `Stalled`, a Warning has the [reason of that condition](conditions.md#reasons) and its "
        "message.",
    ]
    return "\n\n".join(blocks) + "\n"


def _overview(types: type[StrEnum]) -> str:
    texts = descriptions(types)
    rows = [
        [
            f"`{condition}`",
            texts[condition.name],
            ", ".join(f"[{reason}](#{reason.lower()})" for reason in REASONS[types][condition]),
        ]
        for condition in types
    ]
    return table(["condition", "meaning", "reasons"], rows)


def _reasons() -> Iterator[str]:
    said = _by_name()
    for name in sorted(said):
        yield f"### {name}"
        for (meaning, remedy), where in said[name].items():
            yield f"{'; '.join(where)}: {meaning}" + (f"\n\n> {remedy}" if remedy else "")


def _by_name() -> dict[str, dict[tuple[str, str], list[str]]]:
    """The conditions that have a reason, by its name, and by its meaning and remedy there."""
    kinds = {CommonCondition: EVERY_KIND} | {resource.conditions: resource.kind.name for resource in RESOURCES}
    said: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for types, conditions in REASONS.items():
        for condition, reasons in conditions.items():
            for reason in reasons:
                said[reason][reason.meaning, reason.remedy].append(f"`{condition}` of {kinds[types]}")
    return said
