"""What coderd answered about a proxy, as conditions, and how long that is good enough.

A proxy is looked at whenever anything around it changes, and coderd may be slow, away or annoyed. So an answer stands
for a while, good or bad: however often a proxy is looked at, coderd is asked a bounded number of times.
"""

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import NamedTuple

from coder_k8s.api import reasons
from coder_k8s.api.conditions import WorkspaceProxyCondition
from coder_k8s.coderd import errors
from coder_k8s.coderd.errors import sanitize
from coder_k8s.coderd.types import WorkspaceProxy
from coder_k8s.controllers.labels import ADOPT
from coder_k8s.controllers.report import Report
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.objects import Key

from .registration import PRIMARY, Blocked

REGISTERED = WorkspaceProxyCondition.REGISTERED
HEALTHY = WorkspaceProxyCondition.PROXY_HEALTHY

INTERVAL = 60.0
"""coderd itself looks at its proxies once a minute."""
SOON = 10.0
RETRY = 30.0
RECHECK = 110.0
"""A license is noticed within two minutes."""

STATES = {"unhealthy": reasons.UNHEALTHY, "unreachable": reasons.UNREACHABLE, "unregistered": reasons.UNREGISTERED}
EXPLAINED = {
    reasons.UNHEALTHY: "coderd reaches the proxy and finds it unhealthy",
    reasons.UNREACHABLE: "coderd cannot reach the proxy",
    reasons.UNREGISTERED: "coderd has not heard from the proxy yet",
}


class Verdict(NamedTuple):
    """What a condition says."""

    holds: bool | None
    reason: reasons.Reason
    message: str = ""
    satisfied: bool | None = None
    stalled: bool = False


class Answer(NamedTuple):
    """What coderd said, about what, and until when that stands."""

    about: Hashable
    until: datetime
    registered: Verdict
    healthy: Verdict
    failures: int = 0


NOT_MANAGED = Verdict(None, reasons.NOT_MANAGED, "the token is given by proxySessionTokenSecretRef", satisfied=True)
NOT_ASKED = Verdict(None, reasons.UNKNOWN, "coderd could not be asked")


def tell(report: Report, condition: WorkspaceProxyCondition, verdict: Verdict) -> None:
    report.add(
        condition,
        verdict.holds,
        verdict.reason,
        verdict.message,
        satisfied=verdict.satisfied,
        stalled=verdict.stalled,
    )


def health(found: WorkspaceProxy, replicas: int, token: str) -> Verdict:
    """How coderd sees a proxy, in its own words but for the token."""
    seen = found.status.report
    parts = [*(seen.errors or []), *(f"warning: {each}" for each in seen.warnings or [])]
    words = sanitize("; ".join(parts), (token, token.partition(":")[2]))
    if replicas == 0:
        return Verdict(False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True)
    if found.status.status == "ok":
        reached = (
            f"Coder reaches the proxy, which runs {sanitize(found.version)}"
            if found.version
            else "Coder reaches the proxy"
        )
        return Verdict(True, reasons.HEALTHY, f"{reached}; {words}" if words else reached)
    reason = STATES.get(found.status.status)
    if reason is None:
        return Verdict(None, reasons.UNKNOWN, words or "coderd does not say how the proxy is")
    return Verdict(False, reason, f"{EXPLAINED[reason]}: {words}" if words else EXPLAINED[reason])


def registered_as(found: WorkspaceProxy, url: str) -> Verdict:
    return Verdict(True, reasons.REGISTERED, f"Registered under the name {sanitize(found.name)} at {url}")


def name_taken(found: Blocked) -> Verdict:
    """What to do about a proxy of the wanted name that is not this object's."""
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
    return Verdict(False, reasons.NAME_TAKEN, message, stalled=True)


def refusal(trouble: errors.CoderdError, *, given: bool, user: str) -> Verdict:
    """What it means that coderd refused; `given` credentials are for their giver to fix, our own are not."""
    match trouble:
        case errors.NotLicensed():
            return Verdict(False, reasons.NOT_ENTITLED, str(trouble), stalled=True)
        case errors.NotSupported():
            return Verdict(
                False, reasons.NOT_SUPPORTED, "this build of coderd knows no workspace proxies", stalled=True
            )
        case errors.Unauthorized():
            return Verdict(False, reasons.CREDENTIALS_REJECTED, str(trouble), stalled=given)
        case errors.Forbidden():
            needed = "grant it the role Owner in Coder, or another role that may"
            message = f"{user} may not manage workspace proxies: {needed}. Coder answered: {trouble}"
            return Verdict(False, reasons.FORBIDDEN, message, stalled=True)
        case errors.Invalid():
            return Verdict(False, reasons.INVALID, str(trouble), stalled=True)
        case errors.RateLimited():
            return Verdict(None, reasons.RATE_LIMITED, str(trouble))
        case _:
            return Verdict(None, reasons.UNAVAILABLE, str(trouble))


class Answers:
    """The last answer about each proxy.

    It belongs to what was asked with, such as a generation of the spec and a token: with something else one asks anew.
    """

    def __init__(self, now: Callable[[], datetime], backoff: Backoff) -> None:
        self._now = now
        self._backoff = backoff
        self._answers: dict[Key, Answer] = {}

    def get(self, key: Key, about: Hashable) -> Answer | None:
        known = self._answers.get(key)
        return known if known is not None and known.about == about and self.left(known) > 0 else None

    def left(self, answer: Answer) -> float:
        """For how many seconds it stands."""
        return (answer.until - self._now()).total_seconds()

    def found(self, key: Key, about: Hashable, registered: Verdict, healthy: Verdict) -> Answer:
        restless = healthy.holds is not True and not healthy.satisfied
        return self._keep(key, about, SOON if restless else INTERVAL, registered, healthy)

    def refused(self, key: Key, about: Hashable, verdict: Verdict) -> Answer:
        """What nobody can mend by waiting is asked again at a steady pace, anything else ever more rarely."""
        before = self._answers.get(key)
        failures = 1 + (before.failures if before else 0)
        if verdict.reason in (reasons.NOT_ENTITLED, reasons.NOT_SUPPORTED, reasons.FORBIDDEN):
            seconds = RECHECK
        else:
            seconds = self._backoff.delay(failures) if verdict.holds is None else RETRY
        return self._keep(key, about, seconds, verdict, NOT_ASKED, failures)

    def forget(self, key: Key) -> None:
        self._answers.pop(key, None)

    def _keep(
        self, key: Key, about: Hashable, seconds: float, registered: Verdict, healthy: Verdict, failures: int = 0
    ) -> Answer:
        until = self._now() + timedelta(seconds=seconds)
        self._answers[key] = answer = Answer(about, until, registered, healthy, failures)
        return answer
