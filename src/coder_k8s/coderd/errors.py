"""Errors of calls to coderd, one class per reaction of the caller.

    CoderdError
    ├── Unavailable      the result is unknown: retry later
    │   ├── RateLimited  retry after `after` seconds
    │   ├── TimedOut     coderd did not finish in time: retry later
    │   └── Redirected   the token must not be sent there: an administrator must change a URL or coderd's settings
    ├── Unauthorized     the token is invalid: get another one
    ├── Forbidden        the token is valid, but its user lacks the permission
    ├── NotLicensed      the feature requires a license
    ├── NotSupported     this build of coderd does not have the route
    ├── NotFound         the resource does not exist, or the user cannot see it
    ├── Conflict         the name, or the same content, already exists
    └── Invalid          coderd rejects the input: a retry does not help

Errors of operator access in coderd's database:

    AccessError
    ├── DatabaseUnreachable  no usable connection, or a timeout
    ├── MigrationsPending    coderd has not created its tables yet
    ├── SchemaUnsupported    the operator does not support the tables
    └── UsernameTaken        another user has the operator's username or email address
"""

import msgspec

from coder_k8s.kube.messages import stable

_MAX_MESSAGE = 300
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
    """A call to coderd failed; the message contains no secrets."""


class Unavailable(CoderdError):
    """No usable response: connection error, timeout, invalid content or internal error."""


class RateLimited(Unavailable):
    """coderd's rate limit is exceeded; retry after `after` seconds."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class TimedOut(Unavailable):
    """coderd responds that it did not finish in time."""


class Redirected(Unavailable):
    """The response is a redirect to `target`, a scheme and host; empty if the response has none."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


class Unauthorized(CoderdError):
    """coderd rejects the token."""


class Forbidden(CoderdError):
    """The user of the token lacks the permission."""


class NotLicensed(CoderdError):
    """The feature is not part of the license."""


class NotSupported(CoderdError):
    """The route does not exist: coderd is an AGPL build or too old."""


class NotFound(CoderdError):
    """The resource does not exist, or the user cannot see it."""


class Conflict(CoderdError):
    """The resource already exists."""


class Invalid(CoderdError):
    """coderd rejects the content of the request."""


class AccessError(Exception):
    """Operator access is not available; the message contains no secrets."""


class DatabaseUnreachable(AccessError):
    """No usable connection, or a timeout."""


class MigrationsPending(AccessError):
    """coderd has not created its tables yet."""


class SchemaUnsupported(AccessError):
    """The operator does not support the tables."""


class UsernameTaken(AccessError):
    """Another user has the operator's username or email address."""


class Validation(msgspec.Struct, frozen=True):
    """The error of one field of a request."""

    field: str = ""
    detail: str = ""


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of an error response of coderd."""

    message: str
    detail: str = ""
    validations: list[Validation] = []

    def text(self) -> str:
        """Return message, detail and validations on one line."""
        fields = ", ".join(f"{each.field}: {each.detail}".strip(": ") for each in self.validations)
        parts = [part.strip() for part in (self.message, self.detail, fields)]
        *before, last = [part for part in parts if part] or [""]
        return ": ".join([*(part.rstrip(".:") for part in before), last])


def sanitize(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text stable, truncated, printable and without the given secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    text = stable("".join(char if char.isprintable() else " " for char in text))
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."


def from_response(status: int, retry_after: str | None, body: ErrorResponse, secrets: tuple[str, ...]) -> CoderdError:
    """Return the typed error for an error response of coderd."""
    text = sanitize(body.text(), secrets)
    match status:
        case 400 | 429 if status == 429 or retry_after is not None:
            # coderd rejects an early refresh of entitlements with a 400 and Retry-After.
            return RateLimited(text, _seconds(retry_after))
        case 401:
            return _unauthorized(body, text, secrets)
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


def _unauthorized(body: ErrorResponse, text: str, secrets: tuple[str, ...]) -> CoderdError:
    """Return `Unauthorized` only for a known token error: coderd 2.30 also returns 401 while its database is down."""
    if body.detail.startswith(_TOKEN_ERRORS):
        return Unauthorized(sanitize(body.detail, secrets))  # the message is for a user who can sign in again
    if body.message.startswith("User is not active"):
        return Forbidden(text)
    return Unavailable(f"HTTP 401: {text}")


def _seconds(retry_after: str | None) -> float:
    """Parse `Retry-After`: coderd sends a number, a proxy may send a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else _RATE_LIMIT_WINDOW
