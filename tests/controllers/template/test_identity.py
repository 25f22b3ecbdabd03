"""Which versions belong to an object, and what is shown of their errors."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd.templates import ImportedVersion, LogLine, log_tail
from coder_k8s.controllers.template.claims import other_claim
from coder_k8s.controllers.template.identity import MISSING_VARIABLES, WITHHELD, message_of, own_version, shown_error

DIGEST = "a" * 64
REAPED = "detected as pending for 30 minutes and has been terminated by the reaper"
SECRET = [{"name": "token", "valueFrom": {"secretKeyRef": {"name": "variables", "key": "token"}}}]


def template(
    name: str = "go", hour: int = 1, template_id: str = "", organization_id: str = "", /, **spec: Any
) -> CoderTemplate:
    created = f"2026-03-01T{hour:02}:00:00Z"
    body = {
        "metadata": {"name": name, "namespace": "coder", "uid": f"uid-{name}", "creationTimestamp": created},
        "spec": {"controlPlaneRef": {"name": "demo"}, "source": {"inline": {"files": {"main.tf": ""}}}, **spec},
        "status": {"templateID": template_id, "organizationID": organization_id},
    }
    return msgspec.convert(body, CoderTemplate)


def version(message: str, user: str = "operator") -> ImportedVersion:
    created = "2026-03-01T00:00:00Z"
    job = {"id": "j", "created_at": created, "status": "succeeded", "tags": {}}
    body = {"id": "v", "name": "n", "created_at": created, "message": message, "job": job, "created_by": {"id": user}}
    return msgspec.convert(body, ImportedVersion)


@pytest.mark.parametrize(
    ("message", "user", "owned"),
    [
        (message_of(template(), DIGEST, "main@sha1:1"), "operator", True),
        (message_of(template(), DIGEST, ""), "operator", True),
        (message_of(template(), DIGEST, "main@sha1:1"), "someone", False),
        (message_of(template("other"), DIGEST, "main@sha1:1"), "operator", False),
        ("", "operator", False),
    ],
)
def test_own_versions(message: str, user: str, *, owned: bool) -> None:
    found = own_version(template(), version(message, user), "operator")
    assert (found is not None and found.digest == DIGEST) is owned


def test_message_without_a_revision() -> None:
    assert message_of(template(), DIGEST, " ").endswith(", revision -")


@pytest.mark.parametrize(
    ("variables", "error", "code", "shown"),
    [
        ([], "exit status 1: abc", "", "exit status 1: abc"),
        ([{"name": "x", "value": "abc"}], "exit status 1: abc", "", "exit status 1: abc"),
        (SECRET, "", "", ""),
        (SECRET, "exit status 1: abc", "", WITHHELD),
        (SECRET, "missing: token", MISSING_VARIABLES, "missing: token"),
        (SECRET, f"abc {REAPED} abc", "", f"{REAPED} ({WITHHELD})"),
        (SECRET, "abc: connection refused: abc", "", f"connection refused ({WITHHELD})"),
    ],
)
def test_shown_errors(variables: list[Any], error: str, code: str, shown: str) -> None:
    assert shown_error(template(variables=variables), error, code) == shown


@pytest.mark.parametrize(
    ("own", "other", "claim"),
    [
        (template("b", 2, name="x"), template("a", 1, name="X"), "a"),
        (template("b", 1, name="x"), template("a", 2, name="x"), ""),
        (template("b", 1, name="x"), template("a", 2, "t", name="x"), "a"),
        (template("b", 2, "t"), template("a", 1, "t"), "a"),
        (template("b", 2), template("a", 1), ""),
        (template("b", 2, name="x"), template("a", 1, name="x", organizationName="y"), ""),
        (template("b", 2, "", "1", name="x"), template("a", 1, "", "1", name="x", organizationName="y"), "a"),
        (template("b", 2, "", "1", name="x"), template("a", 1, "", "2", name="x", organizationName="y"), ""),
        (template("b", 2, name="x"), template("a", 1, name="x", controlPlaneRef={"name": "y"}), ""),
        (template("b", 2, name="x"), template("a", 1, name="x", managementPolicy="Observe"), ""),
        (template("b", 2, name="x", managementPolicy="Observe"), template("a", 1, name="x"), ""),
    ],
)
def test_claims(own: CoderTemplate, other: CoderTemplate, claim: str) -> None:
    assert other_claim(own, [own, other]) == claim


def test_end_of_a_log() -> None:
    lines = [LogLine("a" * 800), LogLine(" "), LogLine("\x00[31mred")]
    found = log_tail(lines, 700)
    assert found.endswith(";  [31mred")
    assert found.isprintable()
    assert len(found) == 701
