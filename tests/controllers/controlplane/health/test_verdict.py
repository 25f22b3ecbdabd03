"""What a report of coderd's health check means."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api import reasons
from coder_k8s.controllers.controlplane.health.codes import CODES, Severity
from coder_k8s.controllers.controlplane.health.text import LIMIT
from coder_k8s.controllers.controlplane.health.verdict import SECTIONS, Environment

from .reports import decoded, ok, section_of, verdict, warning, with_code, with_section

OK, WARNING, ERROR = Severity
TABLE = {
    "EACS01": ("AccessURLInvalid", ERROR),
    "EACS02": ("AccessURLInvalid", ERROR),
    "EACS03": ("AccessURLUnreachable", ERROR),
    "EACS04": ("AccessURLNotOK", WARNING),
    "EWS01": ("WebsocketBlocked", ERROR),
    "EWS02": ("WebsocketBlocked", ERROR),
    "EWS03": ("WebsocketBlocked", ERROR),
    "EDB01": ("DatabaseDown", ERROR),
    "EDB02": ("DatabaseSlow", WARNING),
    "EDERP01": ("DERPDegraded", ERROR),
    "EDERP02": ("DERPDegraded", ERROR),
    "EDERP03": ("DERPDegraded", ERROR),
    "ESTUN01": ("STUNUnavailable", WARNING),
    "ESTUN02": ("STUNUnavailable", WARNING),
    "EWP01": ("ProxyUnhealthy", WARNING),
    "EWP02": ("ProxyUnhealthy", ERROR),
    "EWP04": ("ProxyUnhealthy", ERROR),
    "EPD01": ("NoProvisioners", ERROR),
    "EPD02": ("ProvisionerVersionSkew", WARNING),
    "EPD03": ("ProvisionerVersionSkew", WARNING),
    "EUNKNOWN": ("UnknownCode", ERROR),
    "ENEW42": ("UnknownCode", ERROR),
}
"""The reason of each code, and its severity in a section at `error`."""


def test_no_problem() -> None:
    found = verdict(ok())
    assert found[:4] == (OK, (), reasons.ALL_CHECKS_PASSED, "All checks of Coder passed")
    assert dict(found.sections) == dict.fromkeys(SECTIONS, OK)


def test_every_known_code_is_in_the_table() -> None:
    assert set(CODES) < set(TABLE)


@pytest.mark.parametrize("as_error", [True, False])
@pytest.mark.parametrize("code", TABLE)
def test_each_code(code: str, as_error: bool) -> None:
    reason, severity = TABLE[code]
    found = verdict(with_code(code, as_error=as_error))
    assert (found.reason, found.severity, found.codes) == (reason, severity, (code,))
    assert found.message.startswith(f"{code}: ")
    assert found.message.endswith(f". See https://coder.com/docs/admin/monitoring/health-check#{code.lower()}")
    assert dict(found.sections)[section_of(code)] == severity
    mild = verdict(with_code(code, "warning", as_error=as_error))
    assert (mild.reason, mild.severity) == (reason, WARNING)


@pytest.mark.parametrize("code", TABLE)
def test_an_ignored_code(code: str) -> None:
    found = verdict(with_code(code), environment=Environment(frozenset([code])))
    assert found[:3] == (OK, (), reasons.ALL_CHECKS_PASSED)
    assert found.message == f"All checks of Coder passed; {code} is ignored by spec.health.ignore"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_dismissed_section(name: str) -> None:
    for found in (
        verdict(with_section(name, severity="error", dismissed=True)),
        verdict(with_section(name, severity="error"), [SECTIONS[name]]),
    ):
        assert found.severity == OK
        assert found.message == f"All checks of Coder passed; {SECTIONS[name]} is dismissed in Coder"
    assert verdict(with_section(name, severity="error"), ["Other", ""]).severity == ERROR


def test_a_dismissed_section_without_a_problem_is_not_mentioned() -> None:
    assert verdict(with_section("derp", dismissed=True), ["DERP"]).message == "All checks of Coder passed"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_problem_without_a_code(name: str) -> None:
    found = verdict(with_section(name, severity="error", error="Odd"))
    assert (found.severity, found.codes) == (ERROR, ())
    assert found.reason == ("DERPDegraded" if name == "derp" else "UnknownCode")
    assert "(Odd)" in found.message


def test_the_most_severe_code_has_the_reason() -> None:
    report = with_code("EWS01", as_error=True)
    report["database"] |= {"severity": "warning", "warnings": [warning("EDB02")]}
    report["derp"] |= {"severity": "warning", "warnings": [warning("ESTUN01"), warning("EDERP01"), warning("ESTUN01")]}
    found = verdict(report)
    assert found.reason == "WebsocketBlocked"
    assert found.codes == ("EWS01", "EDB02", "EDERP01", "ESTUN01")
    assert ". Also: EDB02, EDERP01, ESTUN01. See " in found.message


def test_an_error_that_is_ignored_leaves_the_warnings_of_its_section() -> None:
    report = with_section("access_url", severity="error", error="EACS03: x", warnings=[warning("EACS04")])
    found = verdict(report, environment=Environment(frozenset(["EACS03"])))
    assert (found.severity, found.reason, found.codes) == (WARNING, "AccessURLNotOK", ("EACS04",))


def node(can_exchange: bool, stun_only: bool = False) -> dict[str, Any]:
    return {"can_exchange_messages": can_exchange, "node": {"STUNOnly": stun_only}}


@pytest.mark.parametrize(
    ("nodes", "severity"),
    [
        ([], WARNING),
        ([node(True)], WARNING),
        ([node(False, stun_only=True)], WARNING),
        ([node(True), node(False)], ERROR),
        ([node(False)], ERROR),
        ([None, {}], WARNING),
        (None, WARNING),
    ],
)
@pytest.mark.parametrize("ignore", [[], ["ESTUN01"]])
def test_no_stun_server_is_a_warning_unless_a_relay_is_down(
    nodes: list[Any], severity: Severity, ignore: list[str]
) -> None:
    """Without access to the internet, coderd reports the section as an error, with only a code about STUN."""
    regions = {"999": {"severity": "error", "node_reports": nodes}, "1": None, "2": {}}
    report = with_section("derp", severity="error", warnings=[warning("ESTUN01")], regions=regions)
    found = verdict(report, environment=Environment(frozenset(ignore)))
    assert found.severity == (OK if severity == WARNING and ignore else severity)
    assert found.reason == {OK: "AllChecksPassed", WARNING: "STUNUnavailable", ERROR: "DERPDegraded"}[found.severity]


def test_no_daemon_is_expected_when_autoscaling_scaled_to_zero() -> None:
    found = verdict(with_code("EPD01"), environment=Environment(autoscaled_to_zero=True))
    assert found.severity == OK
    assert found.message.endswith("EPD01 is ignored because autoscaling scaled all provisioners to zero")
    assert verdict(with_code("EPD02"), environment=Environment(autoscaled_to_zero=True)).codes == ("EPD02",)


def test_a_code_that_is_not_one_is_not_passed_on() -> None:
    for bad in ("edb01", "E DB01", "EDB01\nX", 'E"', "E" * 300, "Ä", "EDB01" + "1" * 90):
        report = with_section("database", severity="error", warnings=[warning(bad)])
        assert verdict(report).codes == ("EUNKNOWN",)


def test_many_codes_are_limited() -> None:
    codes = [f"EX{number:03}" for number in range(500)]
    found = verdict(with_section("derp", severity="error", warnings=[warning(code, "y" * 1500) for code in codes]))
    assert found.codes == tuple(codes[:20])
    assert len(found.message.encode()) <= LIMIT


def test_a_text_of_any_language_is_cut_at_a_character() -> None:
    found = verdict(with_code("EACS03", text="ü€😀" * 2000))
    assert len(found.message.encode()) <= LIMIT
    assert "�" not in found.message


def test_measured_values_do_not_change_the_message() -> None:
    first, second = (
        verdict(with_code("EACS03", text=text)).message
        for text in (
            'Get "http://a/healthz": read tcp 10.0.0.1:4711->10.0.0.9:80: no response after 1.5s',
            'Get "http://a/healthz": read tcp 10.0.0.1:5822->10.0.0.9:80: no response after 372.4ms',
        )
    )
    assert first == second


@pytest.mark.parametrize("report", [{}, dict.fromkeys(ok()), {name: {} for name in SECTIONS}, {"severity": "error"}])
def test_absent_fields_are_no_problem(report: dict[str, Any]) -> None:
    assert verdict(report).severity == OK


SECRET = "Hs7Kq2ZpLmX9vB4nT1cR8wYd"
HIDDEN = st.sampled_from(
    [
        "https://{user}:{secret}@host/path",
        "https://{secret}@host",
        "https://{secret}:@host",
        "https://user:{secret}@host:8080/x?y=z",
        "postgres://coder:{secret}@db:5432/coder?sslmode=disable",
        "//{secret}@host",
        "https://a.example.com/x?coder_session_token={secret}&a=b",
        "wss://a/api?token={secret}",
        "Coder-Session-Token: {secret}",
        "Authorization: Bearer {secret}",
        "password={secret} host=db",
        "password = '{secret}'",
        '{{"session_token": "{secret}"}}',
        "abcdefghij-{token}",
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def leaf(field: str) -> st.SearchStrategy[Any]:
    """A value of any kind that the type of the field allows, or none."""
    texts = st.one_of(st.none(), TEXT, st.sampled_from(["ok", "warning", "error", "Error", *TABLE]))
    match field:
        case "dismissed" | "can_exchange_messages" | "STUNOnly":
            return st.one_of(st.none(), st.booleans())
        case _:
            return texts


def struct(*fields: str, **inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    known = {field: leaf(field) for field in fields} | inner
    return st.one_of(st.none(), st.fixed_dictionaries({}, optional=known))


WARNINGS = st.one_of(st.none(), st.lists(st.one_of(TEXT, struct("code", "message")), max_size=4))
NODES = st.lists(struct("can_exchange_messages", node=struct("STUNOnly")), max_size=3)
REGIONS = st.dictionaries(TEXT, struct("severity", node_reports=st.one_of(st.none(), NODES)), max_size=3)
SECTION = struct("severity", "error", "dismissed", warnings=WARNINGS, regions=st.one_of(st.none(), REGIONS))
REPORT = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(SECTIONS, SECTION), **{name: leaf(name) for name in ("time", "coder_version")}}
)


@given(REPORT, st.lists(st.one_of(st.none(), TEXT), max_size=3), st.sets(st.sampled_from([*TABLE])), st.booleans())
def test_any_report_has_a_verdict(report: Any, dismissed: Any, ignore: set[str], at_zero: bool) -> None:
    found = verdict(report, dismissed, Environment(frozenset(ignore), at_zero))
    assert found.severity == max((severity for _, severity in found.sections), default=OK)
    assert (found.reason == reasons.ALL_CHECKS_PASSED) == (found.severity == OK)
    assert not ignore.intersection(found.codes)
    assert len(found.message.encode()) <= LIMIT
    assert found.message.isprintable()
    assert all(re.fullmatch(r"E[A-Z]+[0-9]*", code) for code in found.codes)


@given(HIDDEN, TEXT, TEXT, st.sampled_from([*TABLE]), st.booleans())
def test_no_secret_is_in_a_message(template: str, before: str, after: str, code: str, as_error: bool) -> None:
    secret = SECRET[:22]
    hidden = template.format(user="root", secret=secret, token=secret)
    found = verdict(with_code(code, as_error=as_error, text=f"{before} {hidden} {after}"))
    assert secret not in found.message
    assert "root:" not in found.message


@pytest.mark.parametrize("warnings", ["x", 1, [1], {}, [[]], ["y" * 2_000_000]])
def test_warnings_that_cannot_be_read_are_a_problem_without_a_code(warnings: Any) -> None:
    found = verdict(with_section("database", severity="error", warnings=warnings))
    assert (found.severity, found.codes, found.reason) == (ERROR, (), "UnknownCode")


def test_reports_with_fields_of_other_types_are_not_decoded() -> None:
    reports: list[Any] = [[], "x", {"derp": []}, {"access_url": {"severity": 1}}]
    for report in reports:
        with pytest.raises(msgspec.ValidationError):
            decoded(report)
