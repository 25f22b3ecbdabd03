"""Writes that the API server rejects until the user acts.

| the API server                                        | reason              | retried      |
|-------------------------------------------------------|---------------------|--------------|
| has an object of this name with another owner         | `NameTaken`         | every minute |
| does not know a field                                 | `FieldNotSupported` | every 5 minutes |
| rejects the content                                   | `SpecInvalid`       | with the next change |
| does not permit the write                             | `Forbidden`         | every minute |
"""

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from coder_k8s.api import reasons
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther

from .report import Report

V = TypeVar("V")

NAME_TAKEN_POLL = 60.0
FORBIDDEN_POLL = 60.0
UNSUPPORTED_POLL = 300.0
NOT_APPLICABLE = "failed to create typed patch object"
"""How server-side apply rejects duplicates in a list, with status 500."""


class Rejection(msgspec.Struct, frozen=True):
    """Why a write is rejected, and after how many seconds it is retried without a change."""

    reason: reasons.Reason
    message: str
    poll: float | None = None


async def as_condition(write: Awaitable[V], report: Report, condition: str = "") -> V | None:
    """The result of a write. If it is rejected: `None`, and the object is stalled by this condition."""
    try:
        return await write
    except (OwnedByOther, errors.ApiError) as error:
        rejected = rejection(error)
        if rejected is None:
            raise
    if condition:
        report.add(condition, False, rejected.reason, rejected.message, stalled=True)
    else:
        report.stall(rejected.reason, rejected.message)
    if rejected.poll is not None:
        report.requeue_after(rejected.poll)
    return None


def rejection(error: OwnedByOther | errors.ApiError) -> Rejection | None:
    """What an error means for the user; `None` if it does not require user action."""
    match error:
        case OwnedByOther():
            message = f"{error}; rename this object or delete the other one"
            return Rejection(reasons.NAME_TAKEN, message, NAME_TAKEN_POLL)
        case errors.UnknownField():
            message = f"{error.message}; remove the field from the spec, or upgrade the cluster"
            return Rejection(reasons.FIELD_NOT_SUPPORTED, message, UNSUPPORTED_POLL)
        case errors.Invalid():
            return Rejection(reasons.SPEC_INVALID, error.message)
        case errors.Forbidden():
            return Rejection(reasons.FORBIDDEN, error.message, FORBIDDEN_POLL)
        case errors.ServerError() if NOT_APPLICABLE in error.message:
            return Rejection(reasons.SPEC_INVALID, error.message)
        case _:
            return None
