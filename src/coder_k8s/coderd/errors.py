"""What can go wrong with a call to coderd, named by what the caller can do about it.

    CoderdError
    ├── Unavailable      nothing is known: try again later
    │   ├── RateLimited  try again after `after` seconds
    │   └── Redirected   sent elsewhere, where the token must not go: a human must change a URL or coderd's settings
    ├── Unauthorized     the token is dead: get another one
    ├── Forbidden        the token lives but its user lacks the right: a human must grant it
    ├── NotLicensed      the feature needs a license
    ├── NotSupported     this build of coderd has no such call
    ├── NotFound         the thing is not there, or hidden from this user
    ├── Conflict         the name, or the same content, is there already
    └── Invalid          coderd refuses the input: asking again does not help

And what can go wrong with operator access in coderd's database:

    AccessError
    ├── DatabaseUnreachable  no usable connection, or no answer in time
    ├── MigrationsPending    coderd has not made its tables yet
    ├── SchemaUnsupported    the tables are not those that we know how to write
    └── UsernameTaken        a human has the operator's name
"""

import msgspec

_LONGEST_MESSAGE = 300
_RATE_LIMIT_WINDOW = 60.0
_RBAC_FORBIDDEN = "unauthorized: rbac: forbidden"
_TOKEN_ERRORS = (
    "API key is invalid",
    "API key secret is invalid",
    "API key expired at",
    "Invalid API key format",
    'Cookie "',
)


class CoderdError(Exception):
    """A call to coderd that did not give what was asked for; the message is safe to show."""


class Unavailable(CoderdError):
    """No usable answer: unreachable, too slow, unreadable, or an internal error."""


class RateLimited(Unavailable):
    """Asked too often; the next attempt may succeed `after` seconds from now."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class Redirected(Unavailable):
    """Answered by a redirect to `target`, a scheme and host, which is empty when the answer names none."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


class Unauthorized(CoderdError):
    """coderd says that this very token is bad."""


class Forbidden(CoderdError):
    """The user of the token may not do this."""


class NotLicensed(CoderdError):
    """The feature is not part of the license."""


class NotSupported(CoderdError):
    """The route does not exist: an AGPL build, or an older coderd."""


class NotFound(CoderdError):
    """What the path names does not exist for this user."""


class Conflict(CoderdError):
    """It exists already."""


class Invalid(CoderdError):
    """coderd refused the request's content."""


class AccessError(Exception):
    """Operator access cannot be had now; the message is safe to show."""


class DatabaseUnreachable(AccessError):
    """No usable connection, or no answer in time."""


class MigrationsPending(AccessError):
    """coderd has not made its tables yet."""


class SchemaUnsupported(AccessError):
    """The tables are not those that we know how to write."""


class UsernameTaken(AccessError):
    """A human has the operator's name."""


class Validation(msgspec.Struct, frozen=True):
    """What is wrong with one field of a request."""

    field: str = ""
    detail: str = ""


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every error answer of coderd."""

    message: str
    detail: str = ""
    validations: list[Validation] = []

    def text(self) -> str:
        """Everything that the answer says, on one line."""
        fields = ", ".join(f"{each.field}: {each.detail}".strip(": ") for each in self.validations)
        parts = [part.strip() for part in (self.message, self.detail, fields)]
        *before, last = [part for part in parts if part] or [""]
        return ": ".join([*(part.rstrip(".:") for part in before), last])


def sanitize(text: str, secrets: tuple[str, ...] = ()) -> str:
    """The text in a form that may appear anywhere: short, printable, without the given secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."


def from_response(status: int, retry_after: str | None, body: ErrorResponse, secrets: tuple[str, ...]) -> CoderdError:
    """Return the typed error for an error response of coderd."""
    text = sanitize(body.text(), secrets)
    match status:
        case 400 | 429 if status == 429 or retry_after is not None:
            # A forced refresh of entitlements that comes too early is a 400 with Retry-After.
            return RateLimited(text, _seconds(retry_after))
        case 401:
            return _unauthorized(body, text)
        case 403:
            return NotLicensed(text) if "Contact sales" in body.message else Forbidden(text)
        case 404:
            return NotSupported(text) if body.message == "Route not found." else NotFound(text)
        case 409:
            return Conflict(text)
        case _ if 400 <= status < 500:
            return Invalid(text)
        case 500 if _RBAC_FORBIDDEN in body.detail:
            return Forbidden(text)  # coderd allows reading keys and proxies, but not creating them
        case _:
            return Unavailable(f"HTTP {status}: {text}")


def _unauthorized(body: ErrorResponse, text: str) -> CoderdError:
    """Return `Unauthorized` only for a known token error: coderd 2.30 also returns 401 while its database is down."""
    if body.detail.startswith(_TOKEN_ERRORS):
        return Unauthorized(text)
    if body.message.startswith("User is not active"):
        return Forbidden(text)
    return Unavailable(f"HTTP 401: {text}")


def _seconds(retry_after: str | None) -> float:
    """How long to wait; coderd always sends a number, a proxy in front of it may send a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else _RATE_LIMIT_WINDOW
