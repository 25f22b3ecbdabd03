"""Which error an answer of coderd means."""

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import Problem, Validation, refusal, shown

SIGNED_OUT = "You are signed out or your session has expired. Please sign in again to continue."
INTERNAL = "An internal error occurred. Please try again or contact the system administrator."


@pytest.mark.parametrize(
    ("status", "problem", "kind"),
    [
        (400, Problem("Invalid license", "license has multiple issues; contact support"), errors.Invalid),
        (401, Problem(SIGNED_OUT, "API key is invalid."), errors.Unauthorized),
        (401, Problem(SIGNED_OUT, "API key secret is invalid."), errors.Unauthorized),
        (401, Problem(SIGNED_OUT, 'API key expired at "2026-11-15 18:54:22 +0000 UTC".'), errors.Unauthorized),
        (401, Problem(SIGNED_OUT, "Invalid API key format: incorrect amount"), errors.Unauthorized),
        (401, Problem(SIGNED_OUT, 'Cookie "coder_session_token" or query parameter'), errors.Unauthorized),
        (401, Problem('User is not active (status = "suspended"). Contact an admin'), errors.Forbidden),
        (401, Problem(INTERNAL, "Internal error fetching API key by id. fetch object: pq: ..."), errors.Unavailable),
        (401, Problem(SIGNED_OUT, "something new"), errors.Unavailable),
        (401, Problem(SIGNED_OUT), errors.Unavailable),
        (403, Problem("Workspace Proxy is a Premium feature. Contact sales!"), errors.NotLicensed),
        (403, Problem("External provisioner daemons is an Enterprise feature. Contact sales!"), errors.NotLicensed),
        (403, Problem("Forbidden.", "You don't have permission to view this content."), errors.Forbidden),
        (404, Problem("Route not found."), errors.NotSupported),
        (404, Problem("Resource not found or you do not have access to this resource"), errors.NotFound),
        (409, Problem("exists"), errors.Conflict),
        (429, Problem("You've been rate limited"), errors.RateLimited),
        (500, Problem(INTERNAL), errors.Unavailable),
        (500, Problem("An internal server error occurred.", "unauthorized: rbac: forbidden"), errors.Forbidden),
        (500, Problem("unauthorized: rbac: forbidden"), errors.Unavailable),
        (503, Problem("x"), errors.Unavailable),
    ],
)
def test_the_meaning_of_an_answer(status: int, problem: Problem, kind: type[errors.CoderdError]) -> None:
    assert type(refusal(status, None, problem, ())) is kind


@pytest.mark.parametrize(
    ("status", "header", "after"), [(429, "60", 60), (429, "Wed, 21 Oct 2026", 60), (429, None, 60), (400, "37", 37)]
)
def test_how_long_to_wait(status: int, header: str | None, after: float) -> None:
    error = refusal(status, header, Problem("slow down"), ())
    assert isinstance(error, errors.RateLimited)
    assert error.after == after


def test_a_secret_that_is_echoed_is_not_shown() -> None:
    problem = Problem("Validation failed.", validations=[Validation("license", 'with value: "ey.J.wt"')])
    assert (
        str(refusal(400, None, problem, ("token", "ey.J.wt"))) == 'Validation failed: license: with value: "[redacted]"'
    )


def test_what_is_shown_is_short_and_printable() -> None:
    assert shown("a\nb\x1b[0m") == "a b [0m"
    assert len(shown("x" * 1000)) < 310


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Problem("Invalid license", "license has multiple issues"), "Invalid license: license has multiple issues"),
        (
            Problem("You are signed out. Sign in.", "API key is invalid."),
            "You are signed out. Sign in: API key is invalid.",
        ),
        (Problem("Forbidden."), "Forbidden."),
        (Problem("Bad", validations=[Validation("a", "x"), Validation("b", "y")]), "Bad: a: x, b: y"),
        (Problem("", "only a detail"), "only a detail"),
        (Problem(""), ""),
    ],
)
def test_message_and_detail_are_told_apart(problem: Problem, said: str) -> None:
    assert problem.text() == said
