"""The conditions that errors of the health check become. All are Unknown: the check itself has no result."""

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.coderd import errors
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.controlplane.outcomes import MISSING_ROLE, REJECTED_TOKEN
from coder_k8s.controllers.explanations import Explanation, Explanations, explain
from coder_k8s.controllers.report import Outcome

from .text import capped, stable

HEALTHY = ControlPlaneCondition.HEALTHY
DATABASE_ERROR = "Internal error fetching API key by id"
"""What coderd responds while it cannot read tokens from its database: 401 before 2.32, then 500."""


def _unknown(reason: reasons.Reason, message: str) -> Outcome:
    return Outcome(HEALTHY, None, reason, message)


NO_DATABASE = Explanation(
    _unknown(reasons.DATABASE_DOWN, "Coder cannot read its database, so that its health cannot be checked: {error}")
)
ERRORS: Explanations = {
    errors.NotSupported: Explanation(
        _unknown(reasons.NOT_SUPPORTED, "Image {image} is a version of Coder without a health check"), Recheck.STEADY
    ),
    errors.Unauthorized: Explanation(_unknown(reasons.TOKEN_REJECTED, REJECTED_TOKEN)),
    errors.Forbidden: Explanation(
        _unknown(
            reasons.FORBIDDEN,
            f"{MISSING_ROLE} may not read the health of Coder; grant this user the role Owner in Coder",
        ),
        Recheck.STEADY,
    ),
    errors.RateLimited: Explanation(_unknown(reasons.RATE_LIMITED, "Coder limits the rate of requests")),
    errors.TimedOut: Explanation(_unknown(reasons.TIMED_OUT, "Coder's health check does not finish: {error}")),
    errors.CoderdError: Explanation(
        _unknown(reasons.UNREACHABLE, "The result of Coder's health check cannot be read: {error}")
    ),
}


def judge_error(error: errors.CoderdError, **names: str) -> Explanation:
    """The condition of an error, and when coderd is queried again."""
    explanations = {errors.CoderdError: NO_DATABASE} if DATABASE_ERROR in str(error) else ERRORS
    found = explain(error, explanations, **names)
    return found._replace(outcome=found.outcome._replace(message=capped(stable(found.outcome.message))))
