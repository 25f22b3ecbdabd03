"""Which condition an error of coderd becomes."""

from collections.abc import Mapping
from typing import NamedTuple

from coder_k8s.coderd.errors import CoderdError, RateLimited

from .answers import RETRY, STEADY, Recheck
from .report import Outcome


class Explanation(NamedTuple):
    """The condition that an error becomes, and when coderd is queried again."""

    outcome: Outcome
    recheck: Recheck = Recheck.RETRY
    retry_after: float = 0.0
    """Seconds, from coderd's `Retry-After`."""

    @property
    def seconds(self) -> float:
        """Seconds until the next request, without a back-off."""
        return STEADY if self.recheck is Recheck.STEADY else RETRY


Explanations = Mapping[type[CoderdError], Explanation]
"""What each error means for one request; the message may use `{error}` and names that `explain` is called with."""


def explain(error: CoderdError, explanations: Explanations, **names: str) -> Explanation:
    """The explanation of the error's class, or of the nearest base class; without a message, that of the error.

    Each step that calls coderd has its table. By convention:

    | error | status | stalled | recheck |
    |---|---|---|---|
    | `NotLicensed` | False | yes | steady: a user adds a license |
    | `NotSupported` | False | yes | steady: a user updates Coder |
    | `Unauthorized` | False | if a user gave the credentials | retry: the operator renews its own |
    | `Forbidden` | False | yes, and the message names the missing role | retry or steady |
    | `NotFound`, `Invalid` | False | yes, if the spec names what is wrong | retry or steady |
    | `RateLimited` | Unknown | no | back-off |
    | `Unavailable` and all others | Unknown | no | retry or back-off |
    """
    outcome, recheck, _ = next(explanations[kind] for kind in type(error).__mro__ if kind in explanations)
    message = (outcome.message or "{error}").format(error=error, **names)
    return Explanation(
        outcome._replace(message=message),
        recheck,
        error.after if isinstance(error, RateLimited) else 0.0,
    )
