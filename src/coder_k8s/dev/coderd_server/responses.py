"""Responses of coderd, and the authentication of requests."""

import hashlib
import hmac
import json
from typing import Any

from aiohttp import web

from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.state import State

SIGNED_OUT = "You are signed out or your session has expired. Please sign in again to continue."
NO_RIGHT = (
    "You don't have permission to view this content. If you believe this is a mistake, please contact your "
    "administrator or try signing in with different credentials."
)
HIDDEN = "Resource not found or you do not have access to this resource"
DATABASE_DOWN = 'fetch object: pq: database "coder" is not currently accepting connections'
INTERNAL = "An internal error occurred. Please try again or contact the system administrator."


class ErrorResponse(Exception):
    """Aborts a request with an error response."""

    def __init__(
        self, status: int, message: str, detail: str = "", *, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        body = {"message": message, **({"detail": detail} if detail else {}), **more}
        self.response = json_response(body, status, headers)


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response in coderd's format."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=json.dumps(body).encode() + b"\n", status=status, headers={**kind, **(headers or {})})


def go_error(error: json.JSONDecodeError) -> str:
    """Return the error of Go's JSON decoder for the same text, in the common cases."""
    rest = error.doc[error.pos :].strip()
    if not rest:
        return "unexpected EOF" if error.doc.strip() else "EOF"
    literal = next((each for each in ("null", "true", "false") if each[0] == rest[0]), "")
    for got, expected in zip(rest, literal, strict=False):
        if got != expected:
            return f"invalid character '{got}' in literal {literal} (expecting '{expected}')"
    return f"invalid character '{rest[0]}' looking for beginning of value"


def missing_fields(*names: str) -> ErrorResponse:
    """Return the error for missing required fields."""
    detail = 'Validation failed for tag "required" with value: ""'
    return ErrorResponse(400, "Validation failed.", validations=[{"field": name, "detail": detail} for name in names])


def forbidden_write() -> ErrorResponse:
    """Return the error for a write that the user is not allowed to make."""
    return ErrorResponse(500, "An internal server error occurred.", "unauthorized: rbac: forbidden")


def invalid_field(message: str, name: str, detail: str, more: str = "") -> ErrorResponse:
    return ErrorResponse(400, message, more, validations=[{"field": name, "detail": detail}])


def presented_token(request: web.Request) -> str:
    """Return the token of a request, from any header, cookie or parameter that coderd supports."""
    return (
        request.headers.get("Coder-Session-Token")
        or request.headers.get("Authorization", "").removeprefix("Bearer ")
        or request.cookies.get("coder_session_token")
        or request.query.get("coder_session_token", "")
    )


def presented_key(request: web.Request) -> str:
    """Return the provisioner key of a request."""
    return request.headers.get("Coder-Provisioner-Daemon-Key", "")


def find_user(state: State, token: str) -> User | None:
    """Return the user of a valid token, unless the database is unavailable."""
    identifier, _, secret = token.partition("-")
    known = state.tokens.get(identifier)
    if state.switches.database_down or known is None:
        return None
    return known.user if known.hashed_secret == hashlib.sha256(secret.encode()).digest() else None


def authenticate(state: State, request: web.Request) -> User:
    """Return the user of the request, or raise the error for its token."""
    token = presented_token(request)
    _check_shape(request, token)
    identifier, _, secret = token.partition("-")
    if state.switches.database_down:
        detail = f"Internal error fetching API key by id. {DATABASE_DOWN}"
        if state.is_old:
            raise _unauthorized(request, INTERNAL, detail, "The access token is invalid")
        raise ErrorResponse(500, INTERNAL, detail)
    known = state.tokens.get(identifier)
    if known is None:
        raise _unauthorized(request, SIGNED_OUT, "API key is invalid.")
    if not hmac.compare_digest(known.hashed_secret, hashlib.sha256(secret.encode()).digest()):
        raise _unauthorized(request, SIGNED_OUT, "API key secret is invalid.")
    if known.expires is not None and known.expires <= state.now():
        when = known.expires.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
        raise _unauthorized(request, SIGNED_OUT, f'API key expired at "{when} +0000 UTC".')
    if known.user.status == "suspended":
        message = 'User is not active (status = "suspended"). Contact an admin to reactivate your account.'
        raise _unauthorized(request, message, "", "The access token is invalid")
    return known.user


def _check_shape(request: web.Request, token: str) -> None:
    if not token:
        detail = 'Cookie "coder_session_token" or query parameter must be provided.'
        raise _unauthorized(request, SIGNED_OUT, detail)
    parts = token.split("-")
    if len(parts) != 2:
        detail = f"incorrect amount of API key parts, expected 2 got {len(parts)}"
        raise _unauthorized(request, SIGNED_OUT, f"Invalid API key format: {detail}")
    for part, what, length in zip(parts, ("ID", "secret"), (10, 22), strict=True):
        if len(part) != length:
            detail = f"invalid API key {what} length, expected {length} got {len(part)}"
            raise _unauthorized(request, SIGNED_OUT, f"Invalid API key format: {detail}")


def _unauthorized(
    request: web.Request, message: str, detail: str, described: str = "The access token has expired"
) -> ErrorResponse:
    resource = f"http://{request.host}/.well-known/oauth-protected-resource"
    challenge = (
        f'Bearer realm="coder", error="invalid_token", error_description="{described}", resource_metadata="{resource}"'
    )
    return ErrorResponse(401, message, detail, headers={"WWW-Authenticate": challenge})


def check_rate(state: State, request: web.Request) -> None:
    """Enforce the rate limit, by path and address in 2.30, by path and user in later versions."""
    user = None if state.is_old else find_user(state, presented_token(request))
    if not state.is_old and user is not None and "X-Coder-Bypass-Ratelimit" in request.headers:
        if user.is_owner:
            return
        text = '"X-Coder-Bypass-Ratelimit" provided but user is not owner\n'
        raise web.HTTPPreconditionRequired(text=text)
    who = user.username if user else None
    if state.switches.rate_limited or (who, request.path) in state.exhausted:
        message = "You've been rate limited for sending more than 512 requests in 1m0s."
        raise ErrorResponse(429, message, headers={"Retry-After": "60"})


def require_owner(user: User) -> None:
    if not user.is_owner:
        raise ErrorResponse(403, "Forbidden.", NO_RIGHT)


def require_feature(state: State, feature: str, title: str) -> None:
    if state.entitlement(feature) == "not_entitled":
        raise ErrorResponse(403, f"{title} is a Premium feature. Contact sales!")
