"""What the API server refuses for good is the user's to mend, not ours to try again."""

from collections.abc import Iterator
from contextlib import contextmanager

from coder_k8s.api import reasons
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther

from .report import Report

NAME_TAKEN_POLL = 60.0
FORBIDDEN_POLL = 60.0
UNSUPPORTED_POLL = 300.0
NOT_APPLICABLE = "failed to create typed patch object"
"""How server-side apply refuses duplicates in a list; the API server takes that for a failure of its own, 500."""


@contextmanager
def told(report: Report, condition: str = "") -> Iterator[None]:
    """Turn a refusal into a stalled condition, so that the pass goes on with what else it can do."""
    try:
        yield
    except OwnedByOther as taken:
        _stall(report, condition, reasons.NAME_TAKEN, f"{taken}: rename this object or remove the other")
        report.requeue_after(NAME_TAKEN_POLL)  # nobody tells us when an object that is not ours goes
    except errors.UnknownField as refusal:
        advice = "Kubernetes or the CRD there is too old for it; remove the field from the spec, or update the cluster"
        _stall(report, condition, reasons.FIELD_NOT_SUPPORTED, f"{_sentence(refusal.message)}: {advice}.")
        report.requeue_after(UNSUPPORTED_POLL)  # an update of the cluster changes no object
    except errors.Invalid as refusal:
        _stall(report, condition, reasons.INVALID, refusal.message)
    except errors.Forbidden as refusal:
        _stall(report, condition, reasons.FORBIDDEN, refusal.message)
        report.requeue_after(FORBIDDEN_POLL)
    except errors.ServerError as refusal:
        if NOT_APPLICABLE not in refusal.message:
            raise
        _stall(report, condition, reasons.INVALID, refusal.message)


def _stall(report: Report, condition: str, reason: reasons.Reason, message: str) -> None:
    if condition:
        report.add(condition, False, reason, message, stalled=True)
    else:
        report.stall(reason, message)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
