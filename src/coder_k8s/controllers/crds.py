"""Checks that the CRDs in the cluster have every field of a status.

CRDs that are older than the operator would drop fields that it relies on, such as the keys that it has yet to delete.
Every write uses strict field validation, so one with such a field fails. A dry run tries all fields at once, before the
first object of a kind is reconciled. The result is valid until the process ends or a write fails.
"""

import asyncio
import types
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from coder_k8s.api import CoderObject
from coder_k8s.api.markers import Schema
from coder_k8s.api.shared import Status
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Manifest

RECHECK = timedelta(seconds=60)
EXAMPLES = {str: "x", int: 1, bool: True, datetime: "2026-01-01T00:00:00Z"}

T = TypeVar("T", bound=CoderObject)


class CRDOutdated(Exception):
    """The CRDs lack fields that the operator relies on."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__(
            f"The CRDs in this cluster are older than the operator and do not store {', '.join(fields)}."
            " Install the CRDs of the operator's version."
        )
        self.fields = fields


class SchemaCheck(Generic[T]):
    """Checks the CRD of one kind; the result is the same for all of its objects."""

    def __init__(self, client: Client, kind: Kind[T], now: Callable[[], datetime]) -> None:
        self._client = client
        self._kind = kind
        self._now = now
        self._checking = asyncio.Lock()
        self._complete = False
        self._missing: tuple[str, ...] = ()
        self._checked: datetime | None = None

    async def confirm(self, seen: T) -> None:
        """Raise `CRDOutdated` unless every field can be stored. A field that is missing is tried again every minute."""
        async with self._checking:
            if self._complete:
                return
            if self._missing and self._checked and self._now() < self._checked + RECHECK:
                raise CRDOutdated(self._missing)
            await self._check(seen)

    def outdated(self, fields: tuple[str, ...]) -> None:
        """Record that the API server rejected a write because of these fields."""
        self._complete, self._missing, self._checked = False, fields, self._now()

    async def _check(self, seen: T) -> None:
        patch = {"status": example(type(seen.status))}
        try:
            await self._client.merge(self._kind, seen.key, patch, "status", dry_run=True)
        except errors.UnknownField as error:
            self.outdated(error.fields)
            raise CRDOutdated(error.fields) from None
        except errors.NotFound:
            return
        except (errors.Invalid, errors.Forbidden):
            pass  # a validation rule or a webhook rejects the object; both run after the check of the fields
        self._complete, self._missing = True, ()


def example(status: type[Status]) -> Manifest:
    """A status with every field at every level, except `conditions`, which every version has."""
    return {name: value for name, value in _example(status).items() if name != "conditions"}


def _example(annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        enums = (mark.keywords.get("enum") for mark in arguments[1:] if isinstance(mark, Schema))
        return next((enum[0] for enum in enums if enum), None) or _example(arguments[0])
    if origin in (Union, types.UnionType):
        return _example(next(each for each in arguments if each is not types.NoneType))
    if origin is list:
        return [_example(arguments[0])]
    if origin is dict:
        return {"x": _example(arguments[1])}
    if annotation in EXAMPLES:
        return EXAMPLES[annotation]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return {field.encode_name: _example(field.type) for field in msgspec.structs.fields(annotation)}
    return None
