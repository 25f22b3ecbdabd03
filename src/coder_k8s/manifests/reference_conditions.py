"""The reference pages of conditions and events."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from coder_k8s.api import RESOURCES
from coder_k8s.api.events import COMMON_EVENTS, Event
from coder_k8s.api.reasons import COMMON_REASONS, CommonCondition, Reason

from .model import descriptions
from .reference import table

EVERY_KIND = "every kind"
TROUBLESHOOTING = Path(__file__).with_name("troubleshooting.md")
"""The page without its example messages."""


def conditions_page() -> str:
    """Return the page with the conditions of each kind, and a heading for each reason."""
    blocks = [
        "# Conditions",
        "The conditions that `kubectl describe` shows. To link to a reason, use `conditions.md#` and the reason in "
        "lower case, such as `conditions.md#secretmissing`.",
        "## All kinds",
        "If another condition is not satisfied, these conditions have its reason instead of a reason in the table.",
        _overview(CommonCondition, COMMON_REASONS),
    ]
    for resource in RESOURCES:
        blocks += [f"## {resource.kind.name}", _overview(resource.conditions, resource.reasons)]
    blocks += ["## Reasons", *_reasons()]
    return "\n\n".join(blocks) + "\n"


def events_page() -> str:
    """Return the page with all events."""
    kinds = {event: ["all kinds"] for event in COMMON_EVENTS}
    for resource in RESOURCES:
        for event in resource.events:
            kinds.setdefault(event, []).append(resource.kind.name)
    rows = [_event(event, ", ".join(names)) for event, names in kinds.items()]
    blocks = [
        "# Events",
        "The events that `kubectl describe` and `kubectl events` show. Repeated events are aggregated into one object "
        "with a count.",
        table(["reason", "type", "kind", "when", "what to do"], rows),
        "When an object becomes `Stalled`, a Warning event has the [reason](conditions.md#reasons) and message of that "
        "condition.",
    ]
    return "\n\n".join(blocks) + "\n"


def _event(event: Event, kinds: str) -> list[str]:
    return [f"`{event}`", event.type, kinds, event.meaning, event.remedy]


def _overview(types: type[StrEnum], reasons: Mapping[StrEnum, tuple[Reason, ...]]) -> str:
    texts = descriptions(types)
    rows = [
        [
            f"`{condition}`",
            texts[condition.name],
            ", ".join(f"[{reason}](#{reason.lower()})" for reason in reasons[condition]),
        ]
        for condition in types
    ]
    return table(["condition", "description", "reasons"], rows)


def _reasons() -> Iterator[str]:
    by_name = _by_name()
    for name in sorted(by_name):
        yield f"### {name}"
        for reason, where in by_name[name]:
            yield f"{'; '.join(where)}: {reason.meaning}"
            if reason.example:
                yield f"Example message: `{reason.example}`"
            if reason.remedy:
                yield f"> {reason.remedy}"


def _by_name() -> dict[str, list[tuple[Reason, list[str]]]]:
    """Return each reason by its name, once per documentation, with the conditions that have it."""
    tables = {EVERY_KIND: COMMON_REASONS} | {resource.kind.name: resource.reasons for resource in RESOURCES}
    places: dict[tuple[str, str, str, str], tuple[Reason, list[str]]] = {}
    for kind, conditions in tables.items():
        for condition, reasons in conditions.items():
            for reason in reasons:
                documentation = (str(reason), reason.meaning, reason.remedy, reason.example)
                places.setdefault(documentation, (reason, []))[1].append(f"`{condition}` of {kind}")
    by_name: dict[str, list[tuple[Reason, list[str]]]] = defaultdict(list)
    for reason, where in places.values():
        by_name[reason].append((reason, where))
    return by_name


def troubleshooting_page() -> str:
    """Return the troubleshooting page, with example messages below the heading of each reason."""
    by_name = _by_name()

    def examples(heading: re.Match[str]) -> str:
        messages = dict.fromkeys(reason.example for reason, _ in by_name[heading[1]] if reason.example)
        return "\n\n".join([heading[0], *(f"> {message}" for message in messages)])

    return re.sub(r"^### (\w+)$", examples, TROUBLESHOOTING.read_text(), flags=re.MULTILINE)
