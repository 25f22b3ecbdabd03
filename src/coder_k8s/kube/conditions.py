"""Status conditions and how they change."""

import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import force_setattr as _set

Status = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """A `metav1.Condition`."""

    type: str
    status: Status
    reason: str
    message: str
    last_transition_time: datetime
    observed_generation: int = 0

    @property
    def is_true(self) -> bool | None:
        """The status as a value; None if it is Unknown."""
        return None if self.status == "Unknown" else self.status == "True"


class Finding(NamedTuple):
    """The result of a reconcile for one condition; the status None is Unknown."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


def find(conditions: Iterable[Condition], type: str) -> Condition | None:  # noqa: A002 - the name of the API field
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def share(conditions: Iterable[Condition]) -> None:
    """Share what many conditions have in common, to save memory."""
    times: dict[datetime, datetime] = {}
    for condition in conditions:
        time = condition.last_transition_time
        _set(condition, "type", sys.intern(condition.type))
        _set(condition, "reason", sys.intern(condition.reason))
        _set(condition, "message", _shared(condition.message))
        _set(condition, "last_transition_time", times.setdefault(time, time))


@lru_cache(maxsize=1024)
def _shared(message: str) -> str:
    """Return the equal message that was seen before. It is not interned: some versions of Python keep such strings."""
    return message


def merge(
    existing: Sequence[Condition],
    findings: Iterable[Finding],
    generation: int,
    now: datetime,
    *,
    drop: Collection[str] = (),
) -> list[Condition]:
    """Return the existing conditions, updated with the findings of a generation.

    The transition time of a condition changes only with its status. Conditions without a finding stay, because another
    controller may own them; those with a type in `drop` are removed. The order stays, new conditions are appended.
    """
    now = now.astimezone(UTC).replace(microsecond=0)
    merged = {condition.type: condition for condition in existing}
    for finding in findings:
        merged[finding.type] = _update(merged.get(finding.type), finding, generation, now)
    return [condition for condition in merged.values() if condition.type not in drop]


def _update(old: Condition | None, finding: Finding, generation: int, now: datetime) -> Condition:
    status: Status = "Unknown" if finding.status is None else "True" if finding.status else "False"
    unchanged = old is not None and old.status == status
    return Condition(
        type=finding.type,
        status=status,
        reason=str(finding.reason),  # msgspec encodes no subclass of str
        message=finding.message,
        last_transition_time=old.last_transition_time if old and unchanged else now,
        observed_generation=generation,
    )
