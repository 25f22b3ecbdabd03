"""Parses the query parameters of lists, with coderd's errors."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from aiohttp import web

from coder_k8s.dev.coderd_server.responses import ErrorResponse, go_error

T = TypeVar("T")
NAME = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Query:
    """The parameters of a request. Like coderd, it collects the errors of all parameters; `check` raises them."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query
        self._known: set[str] = set()
        self._errors: list[dict[str, str]] = []

    def parse(self, name: str, default: T, parse: Callable[[str], T], expected: str, reason: str = "") -> T:
        """Return a parameter; an empty one counts as absent."""
        self._known.add(name)
        text = self._query.get(name, "")
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self._errors.append({"field": name, "detail": f'Query param "{name}" {expected}{reason or error}'})
            return default

    def limit(self, default: int = 50) -> int | None:
        """Return the maximum number of results; 0 in a request means no limit."""
        return self.parse("limit", default, positive, "must be a valid 32-bit positive integer: ") or None

    def offset(self) -> int:
        """Return how many results are left out."""
        return self.parse("offset", 0, positive, "must be a valid 32-bit positive integer: ")

    def words(self, name: str) -> set[str]:
        empty: set[str] = set()
        return self.parse(name, empty, lambda text: set(text.split(",")), "has invalid values: ")

    def ids(self, name: str) -> set[str]:
        empty: set[str] = set()
        return self.parse(name, empty, lambda text: {uuid(each) for each in text.split(",")}, "has invalid values: ")

    def id(self, name: str) -> str:
        return self.parse(name, "", uuid, "must be a valid uuid", " ").strip()

    def tags(self) -> dict[str, str]:
        empty: dict[str, str] = {}
        return self.parse("tags", empty, decode_tags, "must be a valid JSON object: ")

    def boolean(self, name: str) -> bool:
        return self.parse(name, False, boolean, "must be a valid boolean: ")

    def duration(self, name: str) -> timedelta:
        expected = "must be a valid duration (e.g., '24h', '30m', '1h30m'): "
        return self.parse(name, timedelta(), duration, expected)

    def text(self, name: str) -> str:
        return self.parse(name, "", str, "must be a valid string: ")

    def check(self, message: str = "Invalid query parameters.", *, lenient: bool = False) -> None:
        """Raise the errors of all parameters and, unless lenient, of those that nobody asked for."""
        unknown = [name for name in dict.fromkeys(self._query) if name not in self._known and not lenient]
        self._errors += [{"field": name, "detail": f'"{name}" is not a valid query param'} for name in unknown]
        if self._errors:
            errors = [{**each, "detail": each["detail"].rstrip()} for each in self._errors]
            raise ErrorResponse(400, message, validations=errors)


def check_enum(wanted: set[str], known: Sequence[str], what: str, enum: str) -> None:
    """Reject unknown values as coderd's database does."""
    for status in wanted - set(known):
        detail = f'fetch object: pq: invalid input value for enum {enum}: "{status}"'
        raise ErrorResponse(500, f"Internal error fetching {what}.", detail)


def positive(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if not -(2**31) <= int(text) < 2**31:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": value out of range')
    if int(text) < 0:
        raise ValueError("value is negative")
    return int(text)


def decode_tags(text: str) -> dict[str, str]:
    try:
        tags: dict[str, str] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(go_error(error)) from None
    return tags


def is_name(text: str) -> bool:
    """Return whether coderd accepts a name of an organization or a template."""
    return len(text) <= 32 and text not in ("new", "create") and NAME.fullmatch(text) is not None


def uuid(text: str) -> str:
    try:
        return str(UUID(text.strip()))
    except ValueError:
        reason = "format" if len(text) == 36 else f"length: {len(text)}"
        raise ValueError(f"invalid UUID {reason}") from None


def path_id(request: web.Request, name: str) -> str:
    """Return the ID in a path, or raise coderd's error."""
    text = request.match_info[name]
    try:
        return uuid(text)
    except ValueError as error:
        raise ErrorResponse(400, f'Invalid UUID "{text}".', str(error)) from None


def boolean(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def duration(text: str) -> timedelta:
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", text):
        raise ValueError(f'time: invalid duration "{text}"')
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    return timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in parts))
