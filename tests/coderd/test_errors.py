"""Which error a response of coderd becomes."""

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import ErrorResponse as Body
from coder_k8s.coderd.errors import Validation, from_response, sanitize

SIGNED_OUT = "You are signed out or your session has expired. Please sign in again to continue."
INTERNAL = "An internal error occurred. Please try again or contact the system administrator."


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, Body("Invalid license", "license has multiple issues; contact support"), errors.Invalid),
        (401, Body(SIGNED_OUT, "API key is invalid."), errors.Unauthorized),
        (401, Body(SIGNED_OUT, "API key secret is invalid."), errors.Unauthorized),
        (401, Body(SIGNED_OUT, 'API key expired at "2026-11-15 18:54:22 +0000 UTC".'), errors.Unauthorized),
        (401, Body(SIGNED_OUT, "Invalid API key format: incorrect amount"), errors.Unauthorized),
        (401, Body(SIGNED_OUT, 'Cookie "coder_session_token" or query parameter'), errors.Unauthorized),
        (401, Body('User is not active (status = "suspended"). Contact an admin'), errors.Forbidden),
        (
            401,
            Body(INTERNAL, "Internal error fetching API key by id. fetch object: pq: ..."),
            errors.Unavailable,
        ),
        (401, Body(SIGNED_OUT, "something new"), errors.Unavailable),
        (401, Body(SIGNED_OUT), errors.Unavailable),
        (403, Body("Workspace Proxy is a Premium feature. Contact sales!"), errors.NotLicensed),
        (
            403,
            Body("External provisioner daemons is an Enterprise feature. Contact sales!"),
            errors.NotLicensed,
        ),
        (403, Body("Forbidden.", "You don't have permission to view this content."), errors.Forbidden),
        (404, Body("Route not found."), errors.NotSupported),
        (404, Body("Resource not found or you do not have access to this resource"), errors.NotFound),
        (409, Body("exists"), errors.Conflict),
        (429, Body("You've been rate limited"), errors.RateLimited),
        (500, Body(INTERNAL), errors.Unavailable),
        (500, Body("An internal server error occurred.", "unauthorized: rbac: forbidden"), errors.Forbidden),
        (500, Body("unauthorized: rbac: forbidden"), errors.Unavailable),
        (503, Body("x"), errors.Unavailable),
    ],
)
def test_error_types(status: int, body: Body, kind: type[errors.CoderdError]) -> None:
    assert type(from_response(status, None, body, ())) is kind


@pytest.mark.parametrize(
    ("status", "header", "after"), [(429, "60", 60), (429, "Wed, 21 Oct 2026", 60), (429, None, 60), (400, "37", 37)]
)
def test_retry_after(status: int, header: str | None, after: float) -> None:
    error = from_response(status, header, Body("slow down"), ())
    assert isinstance(error, errors.RateLimited)
    assert error.after == after


def test_secrets_are_redacted() -> None:
    body = Body("Validation failed.", validations=[Validation("license", 'with value: "ey.J.wt"')])
    assert (
        str(from_response(400, None, body, ("token", "ey.J.wt")))
        == 'Validation failed: license: with value: "[redacted]"'
    )


def test_sanitized_text_is_short_and_printable() -> None:
    assert sanitize("a\nb\x1b[0m") == "a b [0m"
    assert len(sanitize("x" * 1000)) < 310


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            Body("Invalid license", "license has multiple issues"),
            "Invalid license: license has multiple issues",
        ),
        (
            Body("You are signed out. Sign in.", "API key is invalid."),
            "You are signed out. Sign in: API key is invalid.",
        ),
        (Body("Forbidden."), "Forbidden."),
        (Body("Bad", validations=[Validation("a", "x"), Validation("b", "y")]), "Bad: a: x, b: y"),
        (Body("", "only a detail"), "only a detail"),
        (Body(""), ""),
    ],
)
def test_text_of_a_response(body: Body, message: str) -> None:
    assert body.text() == message
