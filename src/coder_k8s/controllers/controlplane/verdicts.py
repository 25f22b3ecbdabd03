"""What coderd or its database answered, and how long that is good enough.

A control plane is looked at whenever anything around it changes, and coderd may be slow, away or annoyed. So an answer
stands for a while, good or bad: however often a control plane is looked at, coderd is asked a bounded number of times.
"""

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from coder_k8s.api import reasons
from coder_k8s.coderd import errors
from coder_k8s.kube.objects import Key

RETRY = 30.0
UNSUPPORTED_RETRY = 600.0


class Verdict(NamedTuple):
    """What a condition says, with the fields of the status that belong to it."""

    holds: bool | None
    reason: reasons.Reason
    message: str = ""
    stalled: bool = False
    fields: Mapping[str, Any] = {}


class Standing:
    """The last verdict on each control plane.

    It belongs to what was asked about, such as a token or a version of a Secret: about something else one asks anew.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._verdicts: dict[Key, tuple[Hashable, datetime, Verdict]] = {}

    def get(self, key: Key, about: Hashable) -> Verdict | None:
        known = self._verdicts.get(key)
        if known is None or known[0] != about or self.left(key) == 0:
            return None
        return known[2]

    def keep(self, key: Key, about: Hashable, verdict: Verdict, seconds: float) -> Verdict:
        self._verdicts[key] = (about, self._now() + timedelta(seconds=seconds), verdict)
        return verdict

    def left(self, key: Key) -> float:
        """For how many seconds it stands."""
        known = self._verdicts.get(key)
        return max(0.0, (known[1] - self._now()).total_seconds()) if known else 0.0

    def forget(self, key: Key) -> None:
        self._verdicts.pop(key, None)


REFUSALS = (errors.Unauthorized, errors.Forbidden, errors.NotFound)
ACCESS_ERRORS: dict[type[errors.AccessError], reasons.Reason] = {
    errors.DatabaseUnreachable: reasons.DATABASE_UNREACHABLE,
    errors.SchemaUnsupported: reasons.SCHEMA_UNSUPPORTED,
    errors.UsernameTaken: reasons.USERNAME_TAKEN,
}
UNCHECKED = frozenset(
    (*ACCESS_ERRORS.values(), reasons.DATABASE_URL_MISSING, reasons.SECRET_UNAVAILABLE, reasons.FORBIDDEN)
)
"""Why the database says nothing of a token, or the token is not renewed."""


def judge_token(answer: str | errors.CoderdError, secret: str, url: str) -> Verdict:
    """What coderd's answer to the token of a Secret means: the name of its user, or an error."""
    match answer:
        case str():
            return Verdict(True, reasons.TOKEN_READY, f"Coder accepts the token in Secret {secret}, of user {answer}")
        case errors.Redirected():
            target = f" to {answer.target}" if answer.target else ""
            message = f"Coder redirects requests for {url}{target}. Set CODER_REDIRECT_TO_ACCESS_URL to false"
            return Verdict(False, reasons.REDIRECTED_TO_ACCESS_URL, message, stalled=True)
        case error if isinstance(error, REFUSALS):
            message = f"coderd refuses the token of Secret {secret}: {error}"
            return Verdict(False, reasons.TOKEN_REJECTED, message, stalled=True)
        case error:
            return Verdict(None, reasons.PENDING, f"the token could not be checked: {error}")


def judge_generated(database: Verdict, coderd: Verdict | None, secret: str) -> Verdict:
    """What both say of the token that the operator made; coderd is asked while a pod is ready.

    | the database | coderd | the condition |
    |---|---|---|
    | the token is valid | redirects | `RedirectedToAccessURL` |
    | the token is valid | refuses the token | `TokenRejected`, which names both |
    | the token is valid | anything else, or not asked | `TokenReady`, valid until a day |
    | cannot be checked or renewed | accepts the token | `TokenReady`, not renewed because of that |
    | cannot be checked or renewed | anything else, or not asked | what the database says |
    | anything else | anything | what the database says |
    """
    if database.holds and coderd is not None and coderd.reason == reasons.REDIRECTED_TO_ACCESS_URL:
        return coderd
    if database.holds and coderd is not None and coderd.reason == reasons.TOKEN_REJECTED:
        message = f"{database.message} in the database of CODER_PG_CONNECTION_URL, but {coderd.message}"
        return Verdict(False, reasons.TOKEN_REJECTED, f"{message}. Use the database that Coder uses", stalled=True)
    if database.reason in UNCHECKED and coderd is not None and coderd.holds:
        message = f"Coder accepts the token in Secret {secret}; it is not renewed: {database.message}"
        return Verdict(True, reasons.TOKEN_READY, message)
    return database


def explain(trouble: errors.CoderdError, what: str) -> tuple[Verdict, float]:
    """What a call that failed means for a condition, and when to try again."""
    match trouble:
        case errors.NotSupported():
            return Verdict(False, reasons.NOT_SUPPORTED, f"this build of coderd knows no {what}"), UNSUPPORTED_RETRY
        case errors.Forbidden() | errors.Unauthorized():
            return Verdict(False, reasons.FORBIDDEN, str(trouble)), RETRY
        case errors.RateLimited():
            return Verdict(False, reasons.ERROR, str(trouble)), min(max(trouble.after, RETRY), UNSUPPORTED_RETRY)
        case _:
            return Verdict(False, reasons.ERROR, str(trouble)), RETRY
