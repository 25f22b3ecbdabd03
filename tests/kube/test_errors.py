"""Which error a response of the API server becomes."""

import json
from typing import Any

import pytest

from coder_k8s.kube import errors

UID = {"causes": [{"field": "spec"}, {"field": "metadata.uid"}]}


def body(**fields: Any) -> bytes:
    return json.dumps({"kind": "Status", "message": "a message", "reason": "Reason", **fields}).encode()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.ServerError),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (500, errors.ServerError),
        (503, errors.ServerError),
        (504, errors.ServerError),
    ],
)
def test_by_code(code: int, kind: type[errors.ApiError]) -> None:
    found = errors.from_response(code, body())
    assert type(found) is kind
    assert (found.status, found.reason, found.message, str(found)) == (code, "Reason", "a message", "a message")
    watched = errors.from_response(500, body(code=code))
    assert (type(watched), watched.status) == (kind, code)


@pytest.mark.parametrize(
    ("code", "fields", "kind"),
    [
        (409, {"reason": "AlreadyExists"}, errors.AlreadyExists),
        (422, {"details": UID}, errors.Conflict),
        (422, {"details": {"causes": [{"field": "spec"}]}}, errors.Invalid),
        (422, {"details": {"causes": None}}, errors.Invalid),
        (422, {"details": None}, errors.Invalid),
    ],
)
def test_by_reason_and_details(code: int, fields: dict[str, Any], kind: type[errors.ApiError]) -> None:
    found = errors.from_response(code, body(**fields))
    assert type(found) is kind
    assert (found.status, found.reason, found.message) == (code, fields.get("reason", "Reason"), "a message")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a message"),
        ({"message": ""}, "Reason"),
        ({"message": None}, "Reason"),
        ({"message": "", "reason": ""}, "HTTP 403"),
        ({"message": None, "reason": None}, "HTTP 403"),
    ],
)
def test_message(fields: dict[str, Any], message: str) -> None:
    assert str(errors.from_response(403, body(**fields))) == message


def test_an_empty_status() -> None:
    found = errors.from_response(403, b"{}")
    assert (type(found), found.reason, found.message) == (errors.Forbidden, "", "HTTP 403")


@pytest.mark.parametrize(
    ("code", "fields", "header", "after"),
    [
        (429, {}, None, 1.0),
        (429, {}, "7", 7.0),
        (429, {}, "0", 0.0),
        (429, {"details": {"retryAfterSeconds": 3}}, None, 3.0),
        (429, {"details": {"retryAfterSeconds": 3}}, "7", 7.0),
        (429, {}, "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        (503, {}, "7", 7.0),
        (503, {"details": {"retryAfterSeconds": 0}}, None, 0.0),
        (503, {}, "later", None),
        (500, {}, "7", None),
    ],
)
def test_retry_after(code: int, fields: dict[str, Any], header: str | None, after: float | None) -> None:
    found = errors.from_response(code, body(**fields), header)
    assert (found.after if isinstance(found, errors.Throttled) else None) == after
    assert (found.status, found.reason, found.message) == (code, "Reason", "a message")


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (404, b"404 page not found\n", errors.NotFound),
        (404, b"<html>404</html>", errors.ServerError),
        (403, b"<html>no</html>", errors.Forbidden),
        (502, b"", errors.ServerError),
        (500, b"\xff", errors.ServerError),
    ],
)
def test_a_body_that_is_not_a_status(code: int, text: bytes, kind: type[errors.ApiError]) -> None:
    found = errors.from_response(code, text)
    assert type(found) is kind
    assert (found.status, found.reason) == (code, "")
    assert found.message == f"HTTP {code} with a body that is not a Kubernetes Status"


def test_an_invalid_response() -> None:
    found = errors.invalid_response(ValueError("no JSON"))
    assert (found.status, found.reason) == (200, "")
    assert found.message == "not a valid Kubernetes response: no JSON"


def test_an_interrupted_stream_has_its_duration() -> None:
    error = errors.StreamInterrupted("ended", 2.5)
    assert (str(error), error.duration) == ("ended", 2.5)
