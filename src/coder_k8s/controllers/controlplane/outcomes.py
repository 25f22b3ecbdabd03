"""The conditions that answers of coderd and its database become."""

from typing import NamedTuple

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.coderd import errors
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.explanations import Explanation, Explanations, explain
from coder_k8s.controllers.report import Outcome

READY = ControlPlaneCondition.OPERATOR_ACCESS_READY
APPLIED = ControlPlaneCondition.LICENSE_APPLIED
KNOWN = ControlPlaneCondition.ENTITLEMENTS_KNOWN
NOT_SUPPORTED_RECHECK = 600.0
"""Seconds until the next request to a coderd that lacks a feature."""


REJECTED_TOKEN = "Coder rejects the token in Secret {secret}: {error}"  # noqa: S105 - a message, not a token
MISSING_ROLE = "The user of the token in Secret {secret}"
OWNER_ROLE = "{error}; grant this user the role Owner in Coder"


class Answer(NamedTuple):
    """A condition, with the fields of the status that belong to it."""

    outcome: Outcome
    status: ControlPlaneStatus | None = None
    """A draft with these fields."""


LICENSE_ERRORS: Explanations = {
    errors.NotSupported: Explanation(
        Outcome(
            APPLIED,
            False,
            reasons.NOT_SUPPORTED,
            "Image {image} is a build of Coder without licenses; use another image, or remove licenseSecretRef",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(Outcome(APPLIED, False, reasons.FORBIDDEN, REJECTED_TOKEN)),
    errors.Forbidden: Explanation(
        Outcome(APPLIED, False, reasons.FORBIDDEN, f"{MISSING_ROLE} may not manage licenses: {OWNER_ROLE}")
    ),
    errors.CoderdError: Explanation(
        Outcome(APPLIED, False, reasons.ERROR, "The license could not be checked in Coder: {error}")
    ),
}
ENTITLEMENTS_ERRORS: Explanations = {
    errors.NotSupported: Explanation(
        Outcome(KNOWN, False, reasons.NOT_SUPPORTED, "Image {image} is a build of Coder without entitlements"),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(Outcome(KNOWN, False, reasons.FORBIDDEN, REJECTED_TOKEN)),
    errors.Forbidden: Explanation(
        Outcome(KNOWN, False, reasons.FORBIDDEN, f"{MISSING_ROLE} may not read entitlements: {OWNER_ROLE}")
    ),
    errors.CoderdError: Explanation(
        Outcome(KNOWN, False, reasons.ERROR, "The entitlements could not be read from Coder: {error}")
    ),
}
REJECTED = Explanation(Outcome(READY, False, reasons.TOKEN_REJECTED, REJECTED_TOKEN, stalled=True))
TOKEN_ERRORS: Explanations = {
    errors.Redirected: Explanation(
        Outcome(
            READY,
            False,
            reasons.REDIRECTED_TO_ACCESS_URL,
            "Coder redirects the operator's requests{target}; set CODER_REDIRECT_TO_ACCESS_URL to false",
            stalled=True,
        )
    ),
    errors.Unauthorized: REJECTED,
    errors.Forbidden: REJECTED,
    errors.NotFound: REJECTED,
    errors.CoderdError: Explanation(
        Outcome(READY, None, reasons.PENDING, "The token in Secret {secret} could not be checked: {error}")
    ),
}

UNCHECKED = frozenset(
    (
        reasons.DATABASE_UNREACHABLE,
        reasons.SCHEMA_UNSUPPORTED,
        reasons.USERNAME_TAKEN,
        reasons.DATABASE_URL_MISSING,
        reasons.SECRET_UNAVAILABLE,
        reasons.FORBIDDEN,
    )
)
"""Reasons with which it is not known whether a token is valid, or the token is not renewed."""


def judge_access_error(error: errors.AccessError) -> Outcome:
    """The condition of an error in the database, with what to do about it."""
    match error:
        case errors.SchemaUnsupported():
            message = f"{error}; upgrade the operator, or set operatorAccess.tokenSecretRef"
            return Outcome(READY, False, reasons.SCHEMA_UNSUPPORTED, message, stalled=True)
        case errors.UsernameTaken():
            return Outcome(READY, False, reasons.USERNAME_TAKEN, f"{error}; rename that user", stalled=True)
        case _:
            return Outcome(READY, False, reasons.DATABASE_UNREACHABLE, f"{error}; check CODER_PG_CONNECTION_URL")


def judge_token(answer: str | errors.CoderdError, secret: str) -> Outcome:
    """Whether coderd accepts the token of a Secret; its answer is the name of the user, or an error."""
    if isinstance(answer, str):
        return Outcome(
            READY, True, reasons.TOKEN_READY, f"Coder accepts the token in Secret {secret}, of user {answer}"
        )
    target = f" to {answer.target}" if isinstance(answer, errors.Redirected) and answer.target else ""
    return explain(answer, TOKEN_ERRORS, secret=secret, target=target).outcome


def judge_generated(database: Outcome, coderd: Outcome | None, secret: str) -> Outcome:
    """The condition of a token that the operator created; coderd is queried while a pod is ready.

    | the token in the database | coderd | the condition |
    |---|---|---|
    | is valid | redirects | `RedirectedToAccessURL` |
    | is valid | rejects the token | `TokenRejected`, which names both |
    | is valid | anything else, or not queried | `TokenReady`, with the day of expiry |
    | cannot be checked or renewed | accepts the token | `TokenReady`, with why it is not renewed |
    | cannot be checked or renewed | anything else, or not queried | that of the database |
    | anything else | anything | that of the database |
    """
    if database.status and coderd is not None and coderd.reason == reasons.REDIRECTED_TO_ACCESS_URL:
        return coderd
    if database.status and coderd is not None and coderd.reason == reasons.TOKEN_REJECTED:
        message = f"{database.message} in the database of CODER_PG_CONNECTION_URL, but {coderd.message}"
        return Outcome(
            READY, False, reasons.TOKEN_REJECTED, f"{message}; set it to the database that Coder uses", stalled=True
        )
    if database.reason in UNCHECKED and coderd is not None and coderd.status:
        message = f"Coder accepts the token in Secret {secret}; it is not renewed: {database.message}"
        return Outcome(READY, True, reasons.TOKEN_READY, message)
    return database
