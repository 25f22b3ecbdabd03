"""Finds every limit and rule of a schema, with a value that violates it and the expected error of the API server."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
Wrap = Callable[[Any], Any]
"""Puts a value into an object at a fixed path."""

NO_NAME = "Not a name!"
A_SECRET = {"name": "x"}
RULES: dict[str, Any] = {
    "the name must not contain '.', because the Service": {"metadata": {"name": "a.b"}},
    "the name must start with a letter": {"metadata": {"name": "1"}},
    "the name must not contain '.', because a daemon": {"metadata": {"name": "a.b"}},
    "built-in, user-auth and psk are reserved by Coder as names of keys": {"metadata": {"name": "psk"}},
    "must not contain '/', control characters, or leading or trailing spaces": "a/b",
    "must be letters, digits, '-', '_' and '.'": "../x",
    "must be lower-case letters, digits, '-' and '.'": NO_NAME,
    "must be lower-case letters, digits and '-'": "a.b",
    "must be a host name in lower case": "https://coder.example.com",
    "must be '*.' and a host name": "coder.example.com",
    "an entry has one source: write configMapRef and secretRef": {"configMapRef": A_SECRET, "secretRef": A_SECRET},
    "ingress and gateway are mutually exclusive": {
        "ingress": {"host": "a.b"},
        "gateway": {"host": "a.b", "parentRefs": [{"name": "x"}]},
    },
    "disabled and tokenSecretRef are mutually exclusive": {"disabled": True, "tokenSecretRef": A_SECRET},
    "built-in, user-auth and psk are reserved by Coder: choose": "psk",
    "must be a positive duration": "30 days",
    "must be at least 1h": "59m",
    "must be at least 5m": "4m",
    "must be at least 1m, or 0s": "59s",
    "must be a cron expression with five fields": "daily",
    "maxReplicas must not be less than minReplicas": {"minReplicas": 2, "maxReplicas": 1},
    "minReplicas of a schedule must not be greater than maxReplicas": {
        "maxReplicas": 1,
        "schedules": [{"start": "0 8 * * *", "end": "0 9 * * *", "minReplicas": 2}],
    },
    "must be a code of Coder's health check": "eacs03",
    "set exactly one of proxySessionTokenSecretRef": {},
    "proxySessionTokenSecretRef needs the URL of Coder": {"proxySessionTokenSecretRef": A_SECRET},
    "must be an http or https URL": "ftp://coder.example.com",
    "must not contain a user or password": "https://user:password@coder.example.com",
    "primary is reserved for the Coder deployment itself": "primary",
    "the name must be at most 32 letters and digits": {"metadata": {"name": "a.b"}},
    "must be letters and digits joined by '-', and neither new nor create": "new",
    "set exactly one of inline, configMapRef and fluxRef": {},
    "all files together must not exceed 256 KiB": {"a": "x" * 200_000, "b": "x" * 100_000},
    "must be a relative path without '..'": "../x",
    "value and valueFrom are mutually exclusive": {
        "value": "x",
        "valueFrom": {"secretKeyRef": A_SECRET | {"key": "x"}},
    },
    "must be a duration with a unit": "12",
    "must not have leading or trailing spaces": " x",
    "deleteDormantAfter deletes workspaces": {"deleteDormantAfter": "1h"},
}
"""The start of the message of each rule, and a value that violates it."""

FORMATS: dict[str, Any] = {"int32": 2**31, "int64": 2.0**64, "date-time": "yesterday", "byte": "not base64!"}
NO_LIMITS = {
    *("type", "anyOf", "description", "default", "properties", "items", "additionalProperties"),
    *("x-kubernetes-map-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
    "x-kubernetes-preserve-unknown-fields",
}


FORMATS_SINCE = 36
"""The minor version since which the API server checks `format: int32`, names status fields with `status`, and has the
current message for lengths. Tested: 1.30 does not."""

ROOT = "<nil>"
"""The name of the whole object in errors of the API server."""


class Violation(NamedTuple):
    """An object that violates one limit, and the field and message of the expected error."""

    field: str
    message: str
    content: Any


def violations(schema: Schema, field: str = "", wrap: Wrap = lambda value: value) -> Iterator[Violation]:
    """A violation of each limit and rule, at all levels."""
    for keyword in schema.keys() - NO_LIMITS:
        assert keyword in VIOLATIONS, f"unknown keyword {keyword} of {field}"
        for below, words, value in VIOLATIONS[keyword](schema, schema[keyword]):
            yield Violation((field + below).lstrip(".") or ROOT, words, wrap(value))
    for name, inner in schema.get("properties", {}).items():
        yield from violations(inner, f"{field}.{name}", _in_object(schema, name, wrap))
    if "items" in schema:
        yield from violations(schema["items"], f"{field}[0]", lambda value: wrap([value]))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from violations(schema["additionalProperties"], f"{field}.key", lambda value: wrap({"key": value}))


def _in_object(schema: Schema, name: str, wrap: Wrap) -> Wrap:
    return lambda value: wrap({**_minimal(schema), name: value})


def _minimal(schema: Schema) -> Any:
    """A minimal value that violates no limit; it may violate a rule."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "integer"):
        case "string":
            return "2026-01-02T03:04:05Z" if schema.get("format") == "date-time" else "x"
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_minimal(schema["items"])] * schema.get("minItems", 0)
    return {name: _minimal(schema["properties"][name]) for name in schema.get("required", ())}


Violating = Iterator[tuple[str, str, Any]]
"""The suffix of the field in the error, the message, and the value."""


def _rules(schema: Schema, rules: list[dict[str, Any]]) -> Violating:
    for rule in rules:
        if rule["rule"].startswith("oldSelf.hasValue() ?"):
            continue  # about a change, not about an object
        about, _, entry_words = rule["message"].partition("each entry: ")
        words = entry_words or rule["message"]
        found = [value for beginning, value in RULES.items() if words.startswith(beginning)]
        assert len(found) == 1, f"RULES has {len(found)} bad values for {words!r}"
        [bad] = found
        if entry_words:  # rules about the items of a list are at the list
            inner = schema["items"]
            bad = [_minimal(inner) | _nested(inner, about.removesuffix(" of "), bad) if about else _with(inner, bad)]
        yield "", rule["message"], _with(schema, bad)


def _nested(schema: Schema, path: str, bad: Any) -> Any:
    """An object with this value at a path."""
    name, _, below = path.partition(".")
    inner = schema["properties"][name]
    return {name: _minimal(inner) | _nested(inner, below, bad) if below else bad}


def _with(schema: Schema, bad: Any) -> Any:
    return _minimal(schema) | bad if isinstance(bad, dict) else bad


def _required(schema: Schema, names: list[str]) -> Violating:
    minimal = _minimal(schema)
    for name in names:
        yield f".{name}", "Required value", {each: value for each, value in minimal.items() if each != name}


def _unique(schema: Schema, kind: str) -> Violating:
    if kind != "atomic":
        yield "[1]", "Duplicate value", [_minimal(schema["items"])] * 2


VIOLATIONS: dict[str, Callable[[Schema, Any], Violating]] = {
    "x-kubernetes-validations": _rules,
    "x-kubernetes-list-type": _unique,
    "required": _required,
    "enum": lambda _, known: iter([("", f'supported values: "{known[0]}"', "bogus")]),
    "format": lambda _, name: iter([("", name, FORMATS[name])]),
    "pattern": lambda _, pattern: iter([("", f"should match '{pattern}'", "?!")]),
    "minLength": lambda _, least: iter([("", f"should be at least {least} chars long", "x" * (least - 1))]),
    "maxLength": lambda _, most: iter([("", f"may not be more than {most} bytes", "x" * (most + 1))]),
    "minimum": lambda _, least: iter([("", f"should be greater than or equal to {least}", least - 1)]),
    "maximum": lambda _, most: iter([("", f"should be less than or equal to {most}", most + 1)]),
    "minItems": lambda _, least: iter([("", f"should have at least {least} items", [])]),
    "minProperties": lambda _, least: iter([("", f"should have at least {least} properties", {})]),
    "maxProperties": lambda _, most: iter(
        [("", f"must have at most {most} items", {f"x{number}": "x" for number in range(most + 1)})]
    ),
    "maxItems": lambda schema, most: iter([("", f"must have at most {most} items", _many(schema["items"], most + 1))]),
}


def _many(items: Schema, number: int) -> list[Any]:
    """This number of items; strings are unique, because the list may be a set."""
    return [f"x{count}" if items["type"] == "string" else _minimal(items) for count in range(number)]
