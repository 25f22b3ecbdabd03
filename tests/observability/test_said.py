"""The registries of reasons and events hold what the controllers can say, all of it and nothing else."""

import ast
import re
from collections import Counter
from enum import StrEnum

import pytest

from coder_k8s.api import RESOURCES
from coder_k8s.api.conditions import CommonCondition
from coder_k8s.api.events import ALL, EVENTS
from coder_k8s.api.reasons import REASONS
from tests.observability import said

REGISTERED = [
    (condition, reason)
    for conditions in REASONS.values()
    for condition, reasons in conditions.items()
    for reason in reasons
]
REASON = re.compile(r"[A-Z][A-Za-z]+")


def test_the_registry_of_reasons_is_what_the_controllers_say() -> None:
    known = {(type(condition).__name__, str(condition), str(reason)) for condition, reason in REGISTERED}
    assert known == said.reasons()


def test_the_registry_of_events_is_what_the_controllers_say() -> None:
    known = {
        (kind, event.type, event.reason)
        for event in EVENTS
        for kind in ([""] if event.kinds == ALL else [kind.name for kind in event.kinds])
    }
    assert known == said.events()


def test_every_condition_of_every_kind_has_reasons() -> None:
    enums: set[type[StrEnum]] = {CommonCondition, *(resource.conditions for resource in RESOURCES)}
    assert set(REASONS) == enums
    for enum in enums:
        assert list(REASONS[enum]) == list(enum)
        assert all(REASONS[enum].values())


def test_nothing_is_registered_twice() -> None:
    reasons = Counter((type(condition), condition, reason) for condition, reason in REGISTERED)
    events = Counter(event.reason for event in EVENTS)
    assert [key for counter in (reasons, events) for key, number in counter.items() if number > 1] == []


def test_texts_are_sentences_for_a_table() -> None:
    texts = [(str(reason), reason.meaning, reason.remedy) for _, reason in REGISTERED]
    texts += [(event.reason, event.when, event.remedy) for event in EVENTS]
    for name, meaning, remedy in texts:
        assert REASON.fullmatch(name)
        assert meaning.endswith("."), name
        assert not remedy or remedy.endswith("."), name
        assert "\n" not in meaning + remedy, name


def test_what_warns_says_what_to_do() -> None:
    assert [event.reason for event in EVENTS if event.type == "Warning" and not event.remedy] == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def f(report, word):\n    report.add(READY, False, word.strip())\n", "what can word.strip"),
        ("def f(report):\n    report.add(made(), False, 'Odd')\n", "which condition is made"),
        ("def f(report):\n    report.add(READY, False, reason='Odd')\n", "what is the reason"),
        ("def f():\n    return Verdict(False, 'Odd')\n", "which condition does a Verdict"),
    ],
)
def test_what_cannot_be_followed_is_not_passed_over(source: str, complaint: str) -> None:
    odd = said.Source(said.FOLDER / "report.py")
    odd.tree = ast.parse(source)
    with pytest.raises(said.Unclear, match=complaint):
        list(said.reasons_of(odd))
