"""Reasons and events are documented, used, and listed where they occur."""

import re
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from coder_k8s import controllers
from coder_k8s.api import RESOURCES, events, reasons
from coder_k8s.api.events import COMMON_EVENTS, Event
from coder_k8s.api.reasons import COMMON_REASONS, CommonCondition, Reason
from tests.observability.documented import examples, undocumented, unobserved
from tests.security.audit import OPERATOR

REASONS = {name: value for name, value in vars(reasons).items() if isinstance(value, Reason)}
EVENTS = {name: value for name, value in vars(events).items() if isinstance(value, Event)}
TABLES = [(CommonCondition, COMMON_REASONS), *((each.conditions, each.reasons) for each in RESOURCES)]
LISTED = [(condition, reason) for _, table in TABLES for condition, row in table.items() for reason in row]
LISTED_EVENTS = [*COMMON_EVENTS, *(event for each in RESOURCES for event in each.events)]
SOURCES = "".join(path.read_text() for path in Path(controllers.__file__ or "").parent.rglob("*.py"))
NAME = re.compile(r"[A-Z][A-Za-z]+")


@pytest.mark.parametrize("constants", [REASONS, EVENTS], ids=["reasons", "events"])
def test_constant_has_the_name_of_its_reason(constants: dict[str, str]) -> None:
    assert {name: name.replace("_", "").lower() for name in constants} == {
        name: reason.lower() for name, reason in constants.items()
    }


def test_every_constant_is_used_and_listed() -> None:
    assert set(REASONS) - set(re.findall(r"\breasons\.([A-Z_]+)\b", SOURCES)) == set()
    assert set(REASONS.values()) == {reason for _, reason in LISTED}
    assert set(EVENTS) - set(re.findall(r"\bevents\.([A-Z_]+)\b", SOURCES)) == set()
    assert set(EVENTS.values()) == set(LISTED_EVENTS)


@pytest.mark.parametrize(("enum", "table"), TABLES)
def test_every_condition_has_reasons(enum: type[StrEnum], table: dict[StrEnum, tuple[Reason, ...]]) -> None:
    assert list(table) == list(enum)
    assert all(table.values())


def test_nothing_is_listed_twice() -> None:
    pairs = Counter((type(condition), condition, reason) for condition, reason in LISTED)
    names = Counter((each.kind.name, event) for each in RESOURCES for event in (*COMMON_EVENTS, *each.events))
    assert [key for counter in (pairs, names) for key, number in counter.items() if number > 1] == []


def test_texts_are_sentences_for_a_table() -> None:
    texts = [(str(reason), reason.meaning, reason.remedy) for _, reason in LISTED]
    texts += [(str(event), event.meaning, event.remedy) for event in LISTED_EVENTS]
    for name, meaning, remedy in texts:
        assert NAME.fullmatch(name)
        assert meaning.endswith("."), name
        assert not remedy or remedy.endswith("."), name
        assert "\n" not in meaning + remedy, name


def test_examples_are_messages_of_kubernetes_style() -> None:
    for reason, text in examples():
        assert not text[0].islower(), reason
        assert not text.endswith("."), reason
        assert "\n" not in text, reason


def test_every_reason_has_an_example() -> None:
    """Admission rejects all that coderd would reject as an invalid registration, or an invalid version."""
    rejected = {"RegistrationInvalid", "VersionRejected"}
    assert {reason for _, reason in LISTED} - {reason for reason, _ in examples()} == rejected


def test_example_that_no_condition_had_is_found() -> None:
    assert {each.partition(": ")[0] for each in unobserved([])} == {reason for reason, _ in examples()}


def test_every_warning_has_a_remedy() -> None:
    assert [event for event in LISTED_EVENTS if event.type == "Warning" and not event.remedy] == []


def status(type_: str, reason: str, user: str = OPERATOR) -> dict[str, Any]:
    of = {"resource": "coderprovisioners", "subresource": "status", "namespace": "demo", "name": "build"}
    body = {"status": {"conditions": [{"type": type_, "reason": reason}]}}
    return {"user": {"username": user}, "verb": "patch", "objectRef": of, "requestObject": body}


def event(type_: str, reason: str) -> dict[str, Any]:
    body = {"regarding": {"kind": "CoderProvisioner", "name": "build"}, "type": type_, "reason": reason}
    of = {"resource": "events", "namespace": "demo", "name": "build.1"}
    return {"user": {"username": OPERATOR}, "verb": "create", "objectRef": of, "requestObject": body}


@pytest.mark.parametrize(
    "request_",
    [
        status("DaemonsConnected", "DaemonsConnected"),
        status("Ready", "DaemonsConnecting"),
        status("Stalled", "CRDOutdated"),
        status("Unrelated", "Odd"),
        status("DaemonsConnected", "Odd", user="admin"),
        event("Normal", "ProvisionerKeyCreated"),
        event("Warning", "OrganizationNotFound"),
        status("DaemonsConnected", "Odd") | {"requestObject": None},
        event("Normal", "Odd") | {"requestObject": {"series": {"count": 2}}},
    ],
)
def test_documented(request_: dict[str, Any]) -> None:
    assert undocumented([request_]) == []


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (status("DaemonsConnected", "Odd"), "DaemonsConnected Odd, by patch coderprovisioners/status demo/build"),
        (
            status("DaemonsConnected", "KeyReady"),
            "DaemonsConnected KeyReady, by patch coderprovisioners/status demo/build",
        ),
        (status("Ready", "LicenseInvalid"), "Ready LicenseInvalid, by patch coderprovisioners/status demo/build"),
        (event("Normal", "Odd"), "Normal Odd, by create events demo/build.1"),
        (event("Normal", "OrganizationNotFound"), "Normal OrganizationNotFound, by create events demo/build.1"),
        (event("Warning", "LicenseExpiring"), "Warning LicenseExpiring, by create events demo/build.1"),
    ],
)
def test_undocumented(request_: dict[str, Any], found: str) -> None:
    assert undocumented([request_]) == [f"CoderProvisioner {found}"]
