"""CEL rules that do not apply to values that are already stored.

API servers before 1.33 evaluate every rule of an object whenever its status is written. If a newer rule rejects the
spec of an older object, its status can never be written again. So a rule is skipped if the value equals the stored one,
as newer API servers do themselves. A rule can compare with the stored value (`oldSelf`), but not below a list, because
its entries have no identity. Rules for entries are therefore moved to their list.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from coder_k8s.api.markers import Check

Json = dict[str, Any]

RULES = "x-kubernetes-validations"
UNCHANGED = "oldSelf.hasValue() && oldSelf.value() == self"
RESERVED = {"as", "break", "const", "continue", "for", "function", "if", "import", "in", "namespace", "package"}
"""Reserved words of CEL: a field with such a name is escaped with two underscores on both sides."""


class EntryRule(NamedTuple):
    """A rule for an entry of a list, or for its field at `path`."""

    rule: str
    message: str
    path: tuple[str, ...] = ()

    def below(self, name: str) -> "EntryRule":
        return self._replace(path=(name, *self.path))

    def for_list(self) -> Json:
        fields = ["entry"]
        for name in self.path:
            fields.append(f"{fields[-1]}.{f'__{name}__' if name in RESERVED else name}")
        absent = "".join(f"!has({field}) || " for field in fields[1:])
        rule = re.sub(r"\bself\b", fields[-1], self.rule)
        subject = f"{'.'.join(self.path)} of each entry" if self.path else "each entry"
        return {"rule": f"self.all(entry, {absent}({rule}))", "message": f"{subject}: {self.message}"}


def as_keyword(checks: tuple[Check, ...]) -> Json:
    """Return the schema keyword for the rules of the API types."""
    rules = [
        {"rule": check.rule, "message": check.message, **({"optionalOldSelf": True} if check.only_at_creation else {})}
        for check in checks
    ]
    return {RULES: rules} if rules else {}


def skip_unchanged(schema: Json) -> Json:
    """Return the schema with rules that are skipped for unchanged values."""
    rules = [*schema.get(RULES, []), *(rule.for_list() for rule in _of_entries(schema))]
    inner = {name: skip_unchanged(each) for name, each in schema.get("properties", {}).items()}
    return {
        **without_rules(schema),
        **({"properties": inner} if inner else {}),
        **({RULES: [_skipped_if_unchanged(rule) for rule in rules]} if rules else {}),
    }


def without_rules(schema: Json) -> Json:
    """Return the schema without rules, as for a status, which only the operator writes."""
    bare = {name: value for name, value in schema.items() if name != RULES}
    if "properties" in bare:
        bare["properties"] = {name: without_rules(inner) for name, inner in bare["properties"].items()}
    if "items" in bare:
        bare["items"] = without_rules(bare["items"])
    return bare


def _of_entries(schema: Json) -> Iterator[EntryRule]:
    """Yield the rules for the entries of a list."""
    if "items" in schema:
        yield from _inside(schema["items"])


def _inside(schema: Json) -> Iterator[EntryRule]:
    for rule in schema.get(RULES, []):
        yield EntryRule(rule["rule"], rule["message"])
    for rule in _of_entries(schema):
        yield EntryRule(**rule.for_list())
    for name, inner in schema.get("properties", {}).items():
        for rule in _inside(inner):
            yield rule.below(name)


def _skipped_if_unchanged(rule: Json) -> Json:
    if "optionalOldSelf" in rule:
        return rule
    return {**rule, "rule": f"{UNCHANGED} || ({rule['rule']})", "optionalOldSelf": True}
