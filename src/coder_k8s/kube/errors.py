"""What can go wrong between us and the API server, named by what the caller can do about it.

KubeError
├── Unreachable         no answer, or half of one: nobody knows whether a write happened
│   └── Cut             the other side ended what had begun
├── NotLeading          refused here, before it was sent: another process may hold the Lease
└── ApiError            the API server's own answer
    ├── Unauthorized    401, also with fresh credentials
    ├── Forbidden       403
    ├── NotFound        404
    ├── Conflict        409, or 422 about the uid: changed since we read it, or another of its name
    │   └── AlreadyExists
    ├── Gone            410: that resourceVersion is no longer kept
    ├── Invalid         400, 422: the same request will fail again
    ├── Throttled       429, or 503 with `Retry-After`: was not processed, try again `after` seconds
    └── ServerError     any other 5xx, or an answer that is not Kubernetes'
"""

import msgspec


class KubeError(Exception):
    """Anything that keeps a request to the API server from succeeding."""


class Unreachable(KubeError):
    """No answer, or half of one."""


class Cut(Unreachable):
    """An answer began, lived for so many seconds, and was ended by the other side before its time."""

    def __init__(self, message: str, lived: float) -> None:
        super().__init__(message)
        self.lived = lived


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
    """The request itself is wrong."""


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


def of(status: int, body: bytes | msgspec.Raw, retry_after: str | None = None) -> ApiError:
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
    return _ERRORS.get(code, ServerError)(code, reason, message)


def not_kubernetes(trouble: Exception) -> ServerError:
    """The error for an answer that no API server gives."""
    return ServerError(200, "", f"the answer is not what Kubernetes sends: {trouble}")
