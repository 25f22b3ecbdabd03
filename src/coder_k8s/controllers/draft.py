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
    fields: dict[str, Any] = object.__getattribute__(status, "_assigned")
    return fields


class _Draft:
    def __init__(self, before: Status) -> None:
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_assigned", {})

    def __getattr__(self, name: str) -> Any:
        fields = object.__getattribute__(self, "_assigned")
        return fields[name] if name in fields else getattr(object.__getattribute__(self, "_before"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self, name)  # raises for a field that does not exist
        object.__getattribute__(self, "_assigned")[name] = value
