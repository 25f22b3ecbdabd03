"""Conditions that keep their transition time."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

Status = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """`metav1.Condition`, one line of a status."""

    type: str
    status: Status
    reason: str
    message: str
    last_transition_time: datetime
    observed_generation: int = 0

    @property
    def holds(self) -> bool | None:
        return None if self.status == "Unknown" else self.status == "True"


class Finding(NamedTuple):
    """What a pass found out about one condition; `None` when it cannot tell."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""

    @property
    def status(self) -> Status:
        return "Unknown" if self.holds is None else "True" if self.holds else "False"


def find(conditions: Iterable[Condition], type: str) -> Condition | None:  # noqa: A002 - Kubernetes' own word
    return next((condition for condition in conditions if condition.type == type), None)


def merge(
    existing: Sequence[Condition],
    findings: Iterable[Finding],
    generation: int,
    now: datetime,
    *,
    drop: Collection[str] = (),
) -> list[Condition]:
    """The existing conditions with what was found at a generation, equal to before when nothing is new.

    A transition time moves when the status flips and only then. Conditions that nobody speaks of stay, for they may
    be another writer's; those of the types in `drop` go. The order stays, new ones come last.
    """
    merged = {condition.type: condition for condition in existing}
    for finding in findings:
        merged[finding.type] = _renew(merged.get(finding.type), finding, generation, now)
    return [condition for condition in merged.values() if condition.type not in drop]


def _renew(old: Condition | None, finding: Finding, generation: int, now: datetime) -> Condition:
    kept = old is not None and old.status == finding.status
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=str(finding.reason),  # msgspec encodes no subclass of str
        message=finding.message,
        last_transition_time=old.last_transition_time if old and kept else now.astimezone(UTC).replace(microsecond=0),
        observed_generation=generation,
    )
