"""What can go wrong between us and the API server, named by what the caller can do about it.

KubeError
├── Unreachable               no answer, or only part of one: it is unknown whether a write happened
│   └── StreamInterrupted     the server or a proxy closed a response that had begun
├── NotLeading          refused here, before it was sent: another process may hold the Lease
└── ApiError            the API server's own answer
    ├── Unauthorized    401, also with fresh credentials
    ├── Forbidden       403
    ├── NotFound        404
    ├── Conflict        409, or 422 about the uid: changed since we read it, or another of its name
    │   └── AlreadyExists
    ├── Gone            410: that resourceVersion is no longer kept
    ├── Invalid         400, 422: the same request will fail again
    │   └── UnknownField  of a field that this server does not know: it is older than what was sent
    ├── Throttled       429, or 503 with `Retry-After`: was not processed, try again `after` seconds
    └── ServerError     any other 5xx, or an answer that is not Kubernetes'
"""

import re

import msgspec


class KubeError(Exception):
    """Anything that keeps a request to the API server from succeeding."""


class Unreachable(KubeError):
    """No answer, or half of one."""


class StreamInterrupted(Unreachable):
    """An answer began, duration for so many seconds, and was ended by the other side before its time."""

    def __init__(self, message: str, duration: float) -> None:
        super().__init__(message)
        self.duration = duration


class NotLeading(KubeError):
    """A write was held back because another process may lead by now."""


class ApiError(KubeError):
    """The API server refused."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Unauthorized(ApiError):
    """The credentials are not accepted."""


class Forbidden(ApiError):
    """The credentials do not suffice."""


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class Conflict(ApiError):
    """The object changed since it was read."""


class AlreadyExists(Conflict):
    """Somebody else created it first."""


class Gone(ApiError):
    """The resourceVersion is too old: list again."""


class Invalid(ApiError):
    """The request itself is wrong; `fields` are those that the server names."""

    def __init__(self, status: int, reason: str, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(status, reason, message)
        self.fields = fields


class UnknownField(Invalid):
    """The server does not know `fields` that were sent."""


class Throttled(ApiError):
    """Not processed; `after` says when to come back."""

    def __init__(self, status: int, reason: str, message: str, after: float) -> None:
        super().__init__(status, reason, message)
        self.after = after


class ServerError(ApiError):
    """The server failed, or something that is not an API server answered."""


class _Cause(msgspec.Struct):
    field: str | None = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct):
    """The body of a refusal."""

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
"""How an API server answers about a group that it does not serve."""


_UNKNOWN = re.compile(r'unknown field "([^"]+)"')
_UNDECLARED = re.compile(r"\.(\S+): field not declared in schema")
_KIND = re.compile(r"Kind=(\w+)\)|^(\w+) in version ")


def unknown_fields(message: str) -> tuple[str, ...]:
    """The fields that a server says it does not know: by a strict write, or by server-side apply, which is a 500.

    Before its verdict on a patch the server quotes the whole object, in which anything may stand.
    """
    _, strict, verdict = message.rpartition("strict decoding error: ")
    return tuple(_UNKNOWN.findall(verdict) if strict else _UNDECLARED.findall(message))


def from_response(status: int, body: bytes | msgspec.Raw, retry_after: str | None = None) -> ApiError:
    """The typed error for an answer."""
    try:
        told = _STATUS.decode(body)
    except ValueError:  # not JSON, or not even text
        told = Status(message=f"HTTP {status} with a body that is not a Kubernetes Status")
        if status == 404 and bytes(body).strip() != UNKNOWN_PATH:
            return ServerError(status, "", told.message or "")  # of something in between: it says nothing of objects
    code, reason = told.code or status, told.reason or ""
    message = told.message or reason or f"HTTP {code}"
    details = told.details or _Details()
    after = float(retry_after) if retry_after and retry_after.isdecimal() else details.retry_after_seconds
    if code == 429 or (code == 503 and after is not None):
        return Throttled(code, reason, message, 1.0 if after is None else after)
    if reason == "AlreadyExists":
        return AlreadyExists(code, reason, message)
    if any(cause.field == "metadata.uid" for cause in details.causes or ()):  # how a patch learns of a namesake
        return Conflict(code, reason, message)
    if unknown := unknown_fields(message):
        kind = _KIND.search(message)
        of_kind = f" of {kind[1] or kind[2]}" if kind else ""
        return UnknownField(code, reason, f"the API server does not know {', '.join(unknown)}{of_kind}", unknown)
    error = _ERRORS.get(code, ServerError)
    if error is Invalid:
        return Invalid(code, reason, message, tuple(cause.field for cause in details.causes or () if cause.field))
    return error(code, reason, message)


def invalid_response(trouble: Exception) -> ServerError:
    """The error for an answer that no API server gives."""
    return ServerError(200, "", f"the answer is not what Kubernetes sends: {trouble}")
