"""Fields of a status that a reconcile assigns.

A draft has the type of the status, so that mypy rejects a field that does not exist. It records which fields were
assigned: only these are written, on top of the live status. The other fields have their previous values.
"""

from typing import Any, TypeVar, cast

from coder_k8s.api.shared import Status

S = TypeVar("S", bound=Status)


def draft(before: S) -> S:
    """A status to assign fields of; `before` does not change."""
    return cast("S", _Draft(before))


def assigned(status: Status) -> dict[str, Any]:
    """The fields of a draft that were assigned, with their values."""
    return dict(vars(status))


class _Draft:
    """Its attributes are the fields that were assigned; the others are looked up in the status before."""

    __slots__ = ("__dict__", "_before")

    def __init__(self, before: Status) -> None:
        object.__setattr__(self, "_before", before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._before, name)

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self._before, name)  # raises for a field that does not exist
        vars(self)[name] = value
