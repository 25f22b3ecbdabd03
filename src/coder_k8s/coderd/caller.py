"""Sends requests to coderd and decodes its responses."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from coder_k8s.coderd.connections import Transport
from coder_k8s.coderd.errors import (
    ErrorResponse,
    Invalid,
    NotSupported,
    Redirected,
    Unauthorized,
    Unavailable,
    from_response,
    sanitize,
)
from coder_k8s.http.connection import Response
from coder_k8s.http.errors import InvalidURL
from coder_k8s.http.urls import parse_url

T = TypeVar("T")

HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
PATH_SAFE = "$&+,:;=@"
"""Characters that Go does not encode in a path, besides letters, digits and `-_.~`. If a path is not encoded exactly as
Go does it, coderd's router passes its segments to the handler without decoding them."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding; `RecursionError` if a response is nested too deeply."""


class Caller:
    """Calls one URL with one token. It uses a shared connection pool, so it is cheap to create."""

    def __init__(self, connections: Transport, url: str, token: str = "") -> None:
        self._connections = connections
        self._url = url.rstrip("/")
        self._token = token

    @property
    def identity(self) -> tuple[str, str]:
        """The URL and a digest of the token, as a cache key."""
        return self._url, hashlib.sha256(self._token.encode()).hexdigest()

    async def call(
        self,
        kind: type[T],
        method: str,
        route: str,
        *names: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request and decode its response."""
        response = await self.send(method, route, *names, body=body, query=query)
        return decode(kind, route, checked(route, response, (self._token,)))

    async def execute(self, method: str, route: str, *names: str) -> None:
        """Send a request and ignore its response, which must be JSON: another response is not from coderd."""
        if body := checked(route, await self.send(method, route, *names), (self._token,)):
            decode(object, route, body)

    async def send(
        self,
        method: str,
        route: str,
        *names: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Insert the names into the route and send the request."""
        if not fits_header(self._token):
            raise Unauthorized("the token contains invalid characters")
        request_headers = {"Coder-Session-Token": self._token, **(headers or {})}
        if body is not None:
            request_headers.setdefault("Content-Type", "application/json")
        if not {"", ".", ".."}.isdisjoint(names):
            raise Invalid(f"{route}: not a valid name")  # a proxy that normalizes paths would change the route
        path = route.format(*(quote(name, safe=PATH_SAFE) for name in names))
        url = f"{self._url}{path}?{urlencode(query)}" if query else self._url + path
        content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            return await self._connections.exchange(method, url, request_headers, content)
        except Unavailable as error:
            error.add_note(f"{method} {route}")
            raise


def fits_header(secret: str) -> bool:
    return secret.isascii() and secret.isprintable()


def checked(route: str, response: Response, secrets: tuple[str, ...]) -> bytes:
    """Return the body of a successful response; raise the typed error otherwise."""
    if 200 <= response.status < 300:
        return response.body
    if 300 <= response.status < 400:
        raise _redirected(route, response.headers.get("location", ""))
    if response.status == 405:
        raise NotSupported(f"{route}: coderd does not support this method")
    raise from_response(response.status, response.headers.get("retry-after"), error_response(response), secrets)


def _redirected(route: str, location: str) -> Redirected:
    """Return the error for a redirect. It is not followed, because the token must not be sent to another server."""
    try:
        origin = parse_url(location).origin
        target = sanitize(f"{origin.scheme}://{origin.authority}")
    except InvalidURL:
        target = ""
    message = f"{route}: the response is a redirect, which is not followed; use the URL of coderd itself"
    return Redirected(message, target)


def decode(kind: type[T], route: str, body: bytes) -> T:
    """Decode a response; Go sends null for an empty list."""
    try:
        return msgspec.json.decode(b"[]" if body.strip() == b"null" else body, type=kind)
    except DECODE_ERRORS as error:
        reason = str(error)
    raise Unavailable(f"{route}: invalid response: {reason}")


def response_time(response: Response) -> datetime | None:
    """Return the `Date` of a response, in whole seconds."""
    try:
        return datetime.strptime(response.headers.get("date", ""), HTTP_DATE).replace(tzinfo=UTC)
    except ValueError:
        return None


def error_response(response: Response) -> ErrorResponse:
    """Decode an error response; raise `Unavailable` if it is not from coderd."""
    try:
        return msgspec.json.decode(response.body, type=ErrorResponse)
    except DECODE_ERRORS:
        pass
    raise Unavailable(f"HTTP {response.status} that is not from coderd")
