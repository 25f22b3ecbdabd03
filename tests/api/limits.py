"""Everything that a schema forbids, with a value that breaks it and what the API server has to say to that."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
Wrap = Callable[[Any], Any]
"""Puts a value into its place in an object."""

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
    "set exactly one of proxySessionTokenSecretRef": {},
    "proxySessionTokenSecretRef needs the URL of Coder": {"proxySessionTokenSecretRef": A_SECRET},
    "must be an http or https URL": "ftp://coder.example.com",
    "must not contain a user or password": "https://user:password@coder.example.com",
    "primary is reserved for the Coder deployment itself": "primary",
}
"""How the message of each rule begins, and what breaks the rule."""

FORMATS: dict[str, Any] = {"int32": 2**31, "int64": 2.0**64, "date-time": "yesterday", "byte": "not base64!"}
NO_LIMITS = {
    *("type", "anyOf", "description", "default", "properties", "items", "additionalProperties"),
    *("x-kubernetes-map-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
    "x-kubernetes-preserve-unknown-fields",
}


FORMATS_SINCE = 36
"""Of the versions that were tried, 1.30 does not check `format: int32`, names fields of a status without `status`,
and has other words for a length."""

ROOT = "<nil>"
"""How the API server calls the object as a whole."""


class Breach(NamedTuple):
    """An object that breaks one limit, the field at which the API server must say so, and the words."""

    field: str
    words: str
    content: Any


def breaches(schema: Schema, field: str = "", wrap: Wrap = lambda value: value) -> Iterator[Breach]:
    """One for each limit and rule, however deep."""
    for keyword in schema.keys() - NO_LIMITS:
        assert keyword in BREAKS, f"nobody knows how to break {keyword} of {field}"
        for below, words, value in BREAKS[keyword](schema, schema[keyword]):
            yield Breach((field + below).lstrip(".") or ROOT, words, wrap(value))
    for name, inner in schema.get("properties", {}).items():
        yield from breaches(inner, f"{field}.{name}", _in_object(schema, name, wrap))
    if "items" in schema:
        yield from breaches(schema["items"], f"{field}[0]", lambda value: wrap([value]))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from breaches(schema["additionalProperties"], f"{field}.key", lambda value: wrap({"key": value}))


def _in_object(schema: Schema, name: str, wrap: Wrap) -> Wrap:
    return lambda value: wrap({**_least(schema), name: value})


def _least(schema: Schema) -> Any:
    """The least that breaks no limit; it may break a rule."""
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
            return [_least(schema["items"])] * schema.get("minItems", 0)
    return {name: _least(schema["properties"][name]) for name in schema.get("required", ())}


Broken = Iterator[tuple[str, str, Any]]
"""What follows the field where the API server names one below, words, a value."""


def _rules(schema: Schema, rules: list[dict[str, Any]]) -> Broken:
    for rule in rules:
        about, _, entry_words = rule["message"].partition("each entry: ")
        words = entry_words or rule["message"]
        found = [value for beginning, value in RULES.items() if words.startswith(beginning)]
        assert len(found) == 1, f"RULES has {len(found)} bad values for {words!r}"
        [bad] = found
        if entry_words:  # a rule about the entries of a list stands at the list
            inner = schema["items"]
            bad = [_least(inner) | {about.removesuffix(" of "): bad} if about else _with(inner, bad)]
        yield "", rule["message"], _with(schema, bad)


def _with(schema: Schema, bad: Any) -> Any:
    return _least(schema) | bad if isinstance(bad, dict) else bad


def _required(schema: Schema, names: list[str]) -> Broken:
    least = _least(schema)
    for name in names:
        yield f".{name}", "Required value", {each: value for each, value in least.items() if each != name}


def _unique(schema: Schema, kind: str) -> Broken:
    if kind != "atomic":
        yield "[1]", "Duplicate value", [_least(schema["items"])] * 2


BREAKS: dict[str, Callable[[Schema, Any], Broken]] = {
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
    "maxItems": lambda schema, most: iter([("", f"must have at most {most} items", _many(schema["items"], most + 1))]),
}


def _many(items: Schema, number: int) -> list[Any]:
    """So many, and different ones where that is simple: a list may be a set."""
    return [f"x{count}" if items["type"] == "string" else _least(items) for count in range(number)]
