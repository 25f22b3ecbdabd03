"""What one reconcile found, for its one status write.

Every step adds the condition it owns. A condition is *satisfied* when this object need not wait for it; when all of
them are, the object is Ready. What requires user action stalls it. `Ready`, `Reconciling` and `Stalled` follow from
that, so the first status write has them, and they always agree with each other.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from coder_k8s.api import reasons
from coder_k8s.api.reasons import Reason
from coder_k8s.api.shared import Status
from coder_k8s.kube.conditions import Condition, Finding, find
from coder_k8s.kube.messages import redacted, stable

from .draft import assigned, draft

S = TypeVar("S", bound=Status)

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
NO_ACTION = "No user action is required"
MESSAGE_LIMIT = 4096
"""Characters of a condition's message; Kubernetes itself allows 32768."""


class Outcome(NamedTuple):
    """What a step found about its condition; the status `None` is Unknown."""

    type: str
    status: bool | None
    reason: Reason
    message: str = ""
    satisfied: bool | None = None
    """Whether the object may be Ready with it; by default when the status is True."""
    stalled: bool = False
    """Whether user action is required."""


class Report:
    """Collects conditions, in the order of the steps."""

    def __init__(self, before: Sequence[Condition] = ()) -> None:
        self.before = before
        """The conditions that the object has so far."""
        self.findings: list[Finding] = []
        self.requeue: float | None = None
        """Seconds until the next reconcile; `None` if only a change causes one."""
        self.retain_conditions = False
        """Whether conditions that this reconcile does not report stay as they are."""
        self.scaled_to_zero = False
        """Whether no pods are wanted: conditions that need pods keep their status, and `Ready` has its own reason."""
        self._open: list[Finding] = []
        self._culprits: list[Finding] = []

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the status to write, besides the conditions."""
        return {}

    def add(
        self,
        type: str,  # noqa: A002 - Kubernetes' own word
        status: bool | None,
        reason: Reason,
        message: str = "",
        *,
        satisfied: bool | None = None,
        stalled: bool = False,
        summary: Reason | None = None,
    ) -> None:
        """Add a condition. The object is not Ready until it is satisfied, by default when its status is True.

        `summary` is the reason of `Ready` until then; by default that of the condition.
        """
        finding = Finding(type, status, reason, message)
        self.findings.append(finding)
        if not (status if satisfied is None else satisfied):
            self._open.append(finding._replace(reason=summary or reason))
        if stalled:
            self.stall(reason, message)

    def add_outcome(self, outcome: Outcome) -> None:
        type_, status, reason, message, satisfied, stalled = outcome
        self.add(type_, status, reason, message, satisfied=satisfied, stalled=stalled)

    def retain(self, condition: str, reason: Reason, message: str) -> None:
        """Add a condition that keeps its status, Unknown if it has none, and is satisfied."""
        known = find(self.before, condition)
        self.add(condition, known.is_true if known else None, reason, message, satisfied=True)

    def stall(self, reason: Reason, message: str) -> None:
        """Report that user action is required."""
        self._culprits.append(Finding(STALLED, True, reason, message))

    def interrupt(self, reason: Reason, message: str) -> None:
        """Report that an error ended the reconcile: the object is not Ready, whatever its conditions are."""
        self._open.insert(0, Finding(READY, False, reason, message))

    def requeue_after(self, seconds: float) -> None:
        """Reconcile again after this time; the shortest time applies."""
        self.requeue = seconds if self.requeue is None else min(seconds, self.requeue)

    def has_reason(self, reason: Reason, *types: str) -> bool:
        """Whether one of these conditions has this reason."""
        return any(finding.reason == reason for finding in self.findings if finding.type in types)

    def conclude(self) -> list[Finding]:
        """All conditions, the summary first, with messages in the style of Kubernetes."""
        return [
            Finding(type_, status, reason, sentence(message))
            for type_, status, reason, message in (*self._summary(), *self.findings)
        ]

    def _summary(self) -> list[Finding]:
        if self._culprits:
            culprit = self._culprits[0]
            return [
                Finding(READY, False, culprit.reason, culprit.message),
                Finding(RECONCILING, False, reasons.STALLED, "Blocked; see the Stalled condition"),
                Finding(STALLED, True, culprit.reason, culprit.message),
            ]
        if self._open:
            first = self._open[0]
            return [
                Finding(READY, None if first.status is None else False, first.reason, first.message),
                Finding(RECONCILING, True, first.reason, first.message),
                Finding(STALLED, False, reasons.PROGRESSING, NO_ACTION),
            ]
        return [
            Finding(READY, True, reasons.SCALED_TO_ZERO, "Scaled to zero")
            if self.scaled_to_zero
            else Finding(READY, True, reasons.ALL_READY, "All components are ready"),
            Finding(RECONCILING, False, reasons.UP_TO_DATE, "All changes are applied"),
            Finding(STALLED, False, reasons.UP_TO_DATE, NO_ACTION),
        ]


class StatusReport(Report, Generic[S]):
    """A report with the fields of a kind's own status, which steps assign to `status`."""

    def __init__(self, before: S) -> None:
        super().__init__(before.conditions)
        self.status = draft(before)

    @property
    def fields(self) -> Mapping[str, Any]:
        return assigned(self.status)

    def update(self, status: S) -> None:
        """Assign the fields that were assigned to another draft."""
        for name, value in assigned(status).items():
            setattr(self.status, name, value)


@lru_cache(maxsize=512)  # most reconciles report what the last one did
def sentence(message: str) -> str:
    """A message that starts with a capital letter and has no trailing period, also if it is an error of a server.

    It is one printable line without passwords, which the last words of a container may have, and without what differs
    in each attempt. A long one is shortened: the API server quotes what it rejects.
    """
    message = redacted(stable(message))
    if not message.isprintable():
        message = "".join(char if char.isprintable() else " " for char in message)
    message = message[:1].upper() + message[1:].rstrip(".")
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
