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

STATES = {"unhealthy": reasons.UNHEALTHY, "unreachable": reasons.UNREACHABLE, "unregistered": reasons.UNREGISTERED}
EXPLAINED = {
    reasons.UNHEALTHY: "coderd reaches the proxy and finds it unhealthy",
    reasons.UNREACHABLE: "coderd cannot reach the proxy",
    reasons.UNREGISTERED: "coderd has not heard from the proxy yet",
}


class Answer(NamedTuple):
    """Both conditions from one response of coderd."""

    registered: Outcome
    healthy: Outcome


NOT_MANAGED = Answer(
    Outcome(REGISTERED, None, reasons.NOT_MANAGED, "The token comes from proxySessionTokenSecretRef", satisfied=True),
    Outcome(HEALTHY, None, reasons.NOT_MANAGED, "The token comes from proxySessionTokenSecretRef", satisfied=True),
)
NOT_QUERIED = Outcome(HEALTHY, None, reasons.UNKNOWN, "Coder could not be asked")

ERRORS: Explanations = {
    errors.NotLicensed: Explanation(Outcome(REGISTERED, False, reasons.NOT_ENTITLED, stalled=True), Recheck.STEADY),
    errors.NotSupported: Explanation(
        Outcome(REGISTERED, False, reasons.NOT_SUPPORTED, "This build of Coder has no workspace proxies", stalled=True),
        Recheck.STEADY,
    ),
    errors.Unauthorized: Explanation(Outcome(REGISTERED, False, reasons.CREDENTIALS_REJECTED)),
    errors.Forbidden: Explanation(
        Outcome(
            REGISTERED,
            False,
            reasons.FORBIDDEN,
            "{user} may not manage workspace proxies: grant it the role Owner in Coder, or another role that may. "
            "Coder answered: {error}",
            stalled=True,
        ),
        Recheck.STEADY,
    ),
    errors.Invalid: Explanation(Outcome(REGISTERED, False, reasons.SPEC_INVALID, stalled=True)),
    errors.RateLimited: Explanation(Outcome(REGISTERED, None, reasons.RATE_LIMITED), Recheck.BACKOFF),
    errors.CoderdError: Explanation(Outcome(REGISTERED, None, reasons.UNAVAILABLE), Recheck.BACKOFF),
}
GIVEN_CREDENTIALS_ERRORS: Explanations = {
    **ERRORS,
    errors.Unauthorized: Explanation(Outcome(REGISTERED, False, reasons.CREDENTIALS_REJECTED, stalled=True)),
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
        reached = (
            f"Coder reaches the proxy, which runs {sanitize(found.version)}"
            if found.version
            else "Coder reaches the proxy"
        )
        return Outcome(HEALTHY, True, reasons.HEALTHY, f"{reached}; {details}" if details else reached)
    reason = STATES.get(found.status.status)
    if reason is None:
        return Outcome(HEALTHY, None, reasons.UNKNOWN, details or "coderd does not say how the proxy is")
    return Outcome(HEALTHY, False, reason, f"{EXPLAINED[reason]}: {details}" if details else EXPLAINED[reason])


def recheck_interval(healthy: Outcome) -> float:
    """Seconds until the next request to coderd, which checks its proxies once a minute."""
    return 60.0 if healthy.status or healthy.satisfied else 10.0


def registered_as(found: WorkspaceProxy, url: str) -> Outcome:
    return Outcome(REGISTERED, True, reasons.REGISTERED, f"Registered under the name {sanitize(found.name)} at {url}")


def name_taken(found: NameConflict) -> Outcome:
    """Explain how to resolve a conflict over the name."""
    if found.name.lower() == PRIMARY:
        message = f"The name {found.name} is that of the Coder deployment itself; rename this object"
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
