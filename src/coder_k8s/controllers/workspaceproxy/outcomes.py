"""Maps responses of coderd about a workspace proxy to conditions."""

from typing import NamedTuple

from coder_k8s.api import WorkspaceProxyCondition, reasons
from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import sanitize
from coder_k8s.coderd.types import WorkspaceProxy
from coder_k8s.controllers.answers import Recheck
from coder_k8s.controllers.explanations import Explanation, Explanations
from coder_k8s.controllers.labels import ADOPT
from coder_k8s.controllers.report import Outcome

from .registration import PRIMARY, NameConflict

REGISTERED = WorkspaceProxyCondition.REGISTERED
HEALTHY = WorkspaceProxyCondition.PROXY_HEALTHY

STATES = {
    "unhealthy": (reasons.PROXY_UNHEALTHY, "Coder reaches the proxy and reports it as unhealthy"),
    "unreachable": (reasons.PROXY_UNREACHABLE, "Coder cannot reach the proxy at its access URL"),
    "unregistered": (reasons.PROXY_UNREGISTERED, "The proxy has not connected to Coder yet"),
}


class Answer(NamedTuple):
    """Both conditions from one response of coderd."""

    registered: Outcome
    healthy: Outcome


GIVEN = "The token comes from proxySessionTokenSecretRef, so the operator does not query Coder"
NOT_MANAGED = Answer(
    Outcome(REGISTERED, None, reasons.NOT_MANAGED, GIVEN, satisfied=True),
    Outcome(HEALTHY, None, reasons.NOT_MANAGED, GIVEN, satisfied=True),
)
NOT_QUERIED = Outcome(HEALTHY, None, reasons.HEALTH_UNKNOWN, "The health is not known; see the condition Registered")

ERRORS: Explanations = {
    errors.NotLicensed: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.NOT_ENTITLED,
            "The license of {coder} does not cover workspace proxies; add one that does: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.NotSupported: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.NOT_SUPPORTED,
            "{coder} is a build of Coder without workspace proxies; use an image that has them",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.CREDENTIALS_REJECTED,
            "{coder} rejects the operator's token; see its condition OperatorAccessReady: {error}",
        )
    ),
    errors.Forbidden: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.FORBIDDEN,
            "{user} cannot manage workspace proxies; assign the role Owner: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Invalid: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.REGISTRATION_INVALID,
            "{coder} rejects workspace proxy {proxy}; correct its name, display name or icon: {error}",
            stalled=True,
        )
    ),
    errors.RateLimited: Explanation(
        Outcome(REGISTERED, None, reasons.RATE_LIMITED, "{coder} limits the request rate: {error}"), Recheck.BACKOFF
    ),
    errors.CoderdError: Explanation(
        Outcome(REGISTERED, None, reasons.CODER_UNAVAILABLE, "Request to {coder} failed: {error}"), Recheck.BACKOFF
    ),
}
GIVEN_CREDENTIALS_ERRORS: Explanations = {
    **ERRORS,
    errors.Unauthorized: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.CREDENTIALS_REJECTED,
            "{coder} rejects the token in Secret {secret}; put a valid token under key {field}: {error}",
            stalled=True,
        )
    ),
    errors.CoderdError: Explanation(
        Outcome(
            REGISTERED,
            None,
            reasons.CODER_UNAVAILABLE,
            "Request to {coder} failed; check bootstrap.coderURL: {error}",
        ),
        Recheck.BACKOFF,
    ),
}
"""With credentials that a user provides, which the operator cannot renew."""


def health(found: WorkspaceProxy, replicas: int, token: str) -> Outcome:
    """The health of a proxy as coderd reports it, without the token."""
    seen = found.status.report
    parts = [*(seen.errors or []), *(f"warning: {each}" for each in seen.warnings or [])]
    details = sanitize("; ".join(parts), (token, token.partition(":")[2]))
    if replicas == 0:
        return Outcome(HEALTHY, False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True)
    if found.status.status == "ok":
        reached = f"Coder reaches the proxy, which runs {found.version}" if found.version else "Coder reaches the proxy"
        return Outcome(HEALTHY, True, reasons.PROXY_HEALTHY, f"{reached}; {details}" if details else reached)
    unknown = (reasons.HEALTH_UNKNOWN, "Coder does not report the health of the proxy")
    reason, message = STATES.get(found.status.status, unknown)
    known = None if reason == reasons.HEALTH_UNKNOWN else False
    return Outcome(HEALTHY, known, reason, f"{message}: {details}" if details else message)


def recheck_interval(healthy: Outcome) -> float:
    """Seconds until the next request to coderd, which checks its proxies once a minute."""
    return 60.0 if healthy.status or healthy.satisfied else 10.0


def registered_as(found: WorkspaceProxy, place: str) -> Outcome:
    return Outcome(REGISTERED, True, reasons.REGISTERED, f"Registered as {sanitize(found.name)} at {place}")


def name_taken(found: NameConflict) -> Outcome:
    """Explain how to resolve a conflict over the name."""
    if found.name.lower() == PRIMARY:
        message = f"Coder reserves the proxy name {found.name} for itself; rename this object"
    elif found.claimed:
        message = (
            f"Coder already has a proxy named {found.name} that another CoderWorkspaceProxy claims; rename this object"
        )
    else:
        fixes = ["delete it in Coder", "rename this object"]
        stop = "stop it and " if found.in_use else ""
        fixes += [f'{stop}take it over with the annotation {ADOPT}: "true"'] if found.adoptable else []
        choice = f"{', '.join(fixes[:-1])}{',' if len(fixes) > 2 else ''} or {fixes[-1]}"
        running = ", and that is running" if found.in_use else ""
        message = f"Coder already has a proxy named {found.name} that this object did not register{running}; {choice}"
    return Outcome(REGISTERED, False, reasons.NAME_TAKEN, message, stalled=True)
