"""Which condition each error of coderd becomes, for every request that the operator sends."""

from typing import NamedTuple

import pytest

from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import CoderdError
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.controlplane.outcomes import ENTITLEMENTS_ERRORS, LICENSE_ERRORS, TOKEN_ERRORS
from coder_k8s.controllers.explanations import Explanations, explain
from coder_k8s.controllers.provisioner.outcomes import (
    BOOTSTRAP_ERRORS,
    DAEMON_ERRORS,
    ENTITLEMENT_ERRORS,
    KEY_ERRORS,
)
from coder_k8s.controllers.workspaceproxy.outcomes import ERRORS, GIVEN_CREDENTIALS_ERRORS

DETAIL = "detail of coderd"
UNAVAILABLE = errors.Unavailable(DETAIL)
LIMITED = errors.RateLimited(DETAIL, 60)
REDIRECTED = errors.Redirected(DETAIL, "https://coder.example.com")
UNAUTHORIZED = errors.Unauthorized(DETAIL)
FORBIDDEN = errors.Forbidden(DETAIL)
NOT_LICENSED = errors.NotLicensed(DETAIL)
NOT_SUPPORTED = errors.NotSupported(DETAIL)
NOT_FOUND = errors.NotFound(DETAIL)
CONFLICT = errors.Conflict(DETAIL)
INVALID = errors.Invalid(DETAIL)
ALL = (
    UNAVAILABLE,
    LIMITED,
    REDIRECTED,
    UNAUTHORIZED,
    FORBIDDEN,
    NOT_LICENSED,
    NOT_SUPPORTED,
    NOT_FOUND,
    CONFLICT,
    INVALID,
)
NAMES = {
    "user": "ada",
    "organization": "acme",
    "secret": "given",
    "field": "token",
    "url": "http://demo",
    "target": "",
    "image": "coder:v2",
    "plane": "demo",
    "coder": "CoderControlPlane demo",
    "key": "build",
    "proxy": "sydney",
}
STEADY, RETRY, BACKOFF = Recheck.STEADY, Recheck.RETRY, Recheck.BACKOFF


class Expected(NamedTuple):
    """What an error becomes."""

    condition: str
    status: bool | None
    reason: str
    stalled: bool
    recheck: Recheck


def table(default: Expected, **others: Expected) -> dict[CoderdError, Expected]:
    """One row for each error; the others have the default."""
    return {error: others.get(type(error).__name__, default) for error in ALL}


KEY_ROWS = {
    "RateLimited": Expected("ProvisionerKeyReady", None, "RateLimited", False, BACKOFF),
    "NotLicensed": Expected("ExternalProvisionersEntitled", False, "NotEntitled", True, STEADY),
    "NotSupported": Expected("ExternalProvisionersEntitled", False, "NotSupported", True, STEADY),
    "Unauthorized": Expected("OperatorAccessReady", False, "TokenRejected", False, RETRY),
}
PROXY_ROWS = {
    "NotLicensed": Expected("Registered", False, "NotEntitled", True, STEADY),
    "NotSupported": Expected("Registered", False, "NotSupported", True, STEADY),
    "Unauthorized": Expected("Registered", False, "CredentialsRejected", False, RETRY),
    "Forbidden": Expected("Registered", False, "Forbidden", True, STEADY),
    "Invalid": Expected("Registered", False, "RegistrationInvalid", True, RETRY),
    "RateLimited": Expected("Registered", None, "RateLimited", False, BACKOFF),
}
TABLES: dict[str, tuple[Explanations, dict[CoderdError, Expected]]] = {
    "operator token": (
        TOKEN_ERRORS,
        table(
            Expected("OperatorAccessReady", None, "Pending", False, RETRY),
            Redirected=Expected("OperatorAccessReady", False, "RedirectedToAccessURL", True, RETRY),
            Unauthorized=Expected("OperatorAccessReady", False, "TokenRejected", True, RETRY),
            Forbidden=Expected("OperatorAccessReady", False, "TokenRejected", True, RETRY),
            NotFound=Expected("OperatorAccessReady", False, "TokenRejected", True, RETRY),
        ),
    ),
    "license": (
        LICENSE_ERRORS,
        table(
            Expected("LicenseApplied", False, "Error", False, RETRY),
            NotSupported=Expected("LicenseApplied", False, "NotSupported", True, STEADY),
            Unauthorized=Expected("LicenseApplied", False, "Forbidden", False, RETRY),
            Forbidden=Expected("LicenseApplied", False, "Forbidden", False, RETRY),
        ),
    ),
    "entitlements": (
        ENTITLEMENTS_ERRORS,
        table(
            Expected("EntitlementsKnown", False, "Error", False, RETRY),
            NotSupported=Expected("EntitlementsKnown", False, "NotSupported", False, STEADY),
            Unauthorized=Expected("EntitlementsKnown", False, "Forbidden", False, RETRY),
            Forbidden=Expected("EntitlementsKnown", False, "Forbidden", False, RETRY),
        ),
    ),
    "external provisioners": (
        ENTITLEMENT_ERRORS,
        table(
            Expected("ExternalProvisionersEntitled", False, "EntitlementsQueryFailed", False, RETRY),
            NotSupported=Expected("ExternalProvisionersEntitled", False, "NotSupported", True, STEADY),
            Unauthorized=Expected("ExternalProvisionersEntitled", False, "Forbidden", False, RETRY),
            Forbidden=Expected("ExternalProvisionersEntitled", False, "Forbidden", False, RETRY),
        ),
    ),
    "provisioner key": (
        KEY_ERRORS,
        table(
            Expected("ProvisionerKeyReady", None, "Failed", False, RETRY),
            Forbidden=Expected("ProvisionerKeyReady", False, "Forbidden", True, RETRY),
            NotFound=Expected("ProvisionerKeyReady", False, "OrganizationNotFound", True, RETRY),
            Invalid=Expected("ProvisionerKeyReady", False, "KeyRejected", True, STEADY),
            **KEY_ROWS,
        ),
    ),
    "daemons, with a token that a user provides": (
        {**DAEMON_ERRORS, **BOOTSTRAP_ERRORS},
        table(
            Expected("DaemonsConnected", None, "DaemonsQueryFailed", False, RETRY),
            **{**KEY_ROWS, "Unauthorized": Expected("BootstrapSecretReady", False, "TokenRejected", True, RETRY)},
        ),
    ),
    "workspace proxy": (ERRORS, table(Expected("Registered", None, "CoderUnavailable", False, BACKOFF), **PROXY_ROWS)),
    "workspace proxy, with credentials that a user provides": (
        GIVEN_CREDENTIALS_ERRORS,
        table(
            Expected("Registered", None, "CoderUnavailable", False, BACKOFF),
            **{**PROXY_ROWS, "Unauthorized": Expected("Registered", False, "CredentialsRejected", True, RETRY)},
        ),
    ),
}
ROWS = [
    pytest.param(explanations, error, expected, id=f"{name}-{type(error).__name__}")
    for name, (explanations, rows) in TABLES.items()
    for error, expected in rows.items()
]


@pytest.mark.parametrize(("explanations", "error", "expected"), ROWS)
def test_explanation(explanations: Explanations, error: CoderdError, expected: Expected) -> None:
    outcome, recheck, retry_after = explain(error, explanations, **NAMES)
    assert Expected(outcome.type, outcome.status, outcome.reason, outcome.stalled, recheck) == expected
    assert outcome.message
    assert "{" not in outcome.message
    assert retry_after == (60 if error is LIMITED else 0)
    if outcome.reason not in ("NotSupported", "OrganizationNotFound", "RedirectedToAccessURL"):
        assert DETAIL in outcome.message


def test_an_error_that_looks_like_a_template_is_quoted() -> None:
    outcome = explain(errors.Forbidden("{user} {missing}"), ERRORS, user="ada").outcome
    assert outcome.message.endswith("{user} {missing}")
