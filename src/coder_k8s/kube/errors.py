"""Errors of requests to the API server, one class per reaction of the caller.

KubeError
├── Unreachable               no response, or an incomplete one: a write may have succeeded
│   ├── StreamInterrupted     the server or a proxy closed the connection during the response
│   └── StreamIdle            a watch received nothing for a while: its connection may be dead
├── NotLeading          not sent, because another process may hold the Lease
└── ApiError            an error response of the API server
    ├── Unauthorized    401, also with fresh credentials
    ├── Forbidden       403
    ├── NotFound        404
    ├── Conflict        409, or 422 about the uid: the object changed or was replaced since it was read
    │   └── AlreadyExists
    ├── Gone            410: the resourceVersion is too old
    ├── Invalid         400, 422: the same request will fail again
    │   └── UnknownField  the server is older than a field of the request
    ├── Throttled       429, or 503 with `Retry-After`: not processed, retry after `after` seconds
    └── ServerError     any other 5xx, or a response that is not from Kubernetes
"""

import re

import msgspec


class KubeError(Exception):
    """A request to the API server failed."""


class Unreachable(KubeError):
    """No response, or an incomplete one."""


class StreamInterrupted(Unreachable):
    """The peer closed the connection `duration` seconds after the response began."""

    def __init__(self, message: str, duration: float) -> None:
        super().__init__(message)
        self.duration = duration


class StreamIdle(Unreachable):
    """The peer sent nothing for the idle timeout. This is no failure by itself: there may have been nothing to send."""


class NotLeading(KubeError):
    """A write was not sent, because another process may be the leader."""


class ApiError(KubeError):
    """The API server returned an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Unauthorized(ApiError):
    """The API server rejects the credentials."""


class Forbidden(ApiError):
    """The user lacks the permission."""


class NotFound(ApiError):
    """The object or its kind does not exist."""


class Conflict(ApiError):
    """The object has changed since it was read."""


class AlreadyExists(Conflict):
    """An object with this name exists."""


class Gone(ApiError):
    """The resourceVersion is too old; a relist is needed."""


class Invalid(ApiError):
    """The request is invalid; `fields` are the fields that the server names."""

    def __init__(self, status: int, reason: str, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(status, reason, message)
        self.fields = fields


class UnknownField(Invalid):
    """The server does not know the `fields` of the request."""


class Throttled(ApiError):
    """The request was not processed; retry after `after` seconds."""

    def __init__(self, status: int, reason: str, message: str, after: float) -> None:
        super().__init__(status, reason, message)
        self.after = after


class ServerError(ApiError):
    """The server failed, or the response is not from an API server."""


class _Cause(msgspec.Struct):
    field: str | None = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct):
    """A `metav1.Status`, the body of an error response."""

    message: str | None = ""
    reason: str | None = ""
    code: int | None = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)
_ERRORS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


UNKNOWN_PATH = b"404 page not found"
"""The response of an API server to a path of a group that it does not serve."""


_UNKNOWN = re.compile(r'unknown field "([^"]+)"')
_UNDECLARED = re.compile(r"\.(\S+): field not declared in schema")
_KIND = re.compile(r"Kind=(\w+)\)|^(\w+) in version ")


def unknown_fields(message: str) -> tuple[str, ...]:
    """Return the unknown fields in an error message of a strict write or of server-side apply (a 500).

    For a patch the message starts with the whole object, so only the text after the last marker counts.
    """
    _, strict, details = message.rpartition("strict decoding error: ")
    return tuple(_UNKNOWN.findall(details) if strict else _UNDECLARED.findall(message))


def from_response(status: int, body: bytes | msgspec.Raw, retry_after: str | None = None) -> ApiError:
    """Return the typed error for an error response."""
    try:
        parsed = _STATUS.decode(body)
    except ValueError:  # not JSON, or not UTF-8
        parsed = Status(message=f"HTTP {status} with a body that is not a Kubernetes Status")
        if status == 404 and bytes(body).strip() != UNKNOWN_PATH:
            return ServerError(status, "", parsed.message or "")  # from a proxy: the object may exist
    code, reason = parsed.code or status, parsed.reason or ""
    message = parsed.message or reason or f"HTTP {code}"
    details = parsed.details or _Details()
    after = float(retry_after) if retry_after and retry_after.isdecimal() else details.retry_after_seconds
    if code == 429 or (code == 503 and after is not None):
        return Throttled(code, reason, message, 1.0 if after is None else after)
    if reason == "AlreadyExists":
        return AlreadyExists(code, reason, message)
    if any(cause.field == "metadata.uid" for cause in details.causes or ()):  # a patch of an object that was replaced
        return Conflict(code, reason, message)
    if unknown := unknown_fields(message):
        kind = _KIND.search(message)
        of_kind = f" of {kind[1] or kind[2]}" if kind else ""
        return UnknownField(code, reason, f"the API server does not know {', '.join(unknown)}{of_kind}", unknown)
    error = _ERRORS.get(code, ServerError)
    if error is Invalid:
        return Invalid(code, reason, message, tuple(cause.field for cause in details.causes or () if cause.field))
    return error(code, reason, message)


def invalid_response(error: Exception) -> ServerError:
    """Return the error for a response that cannot be decoded."""
    return ServerError(200, "", f"not a valid Kubernetes response: {error}")
