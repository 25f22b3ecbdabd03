"""A client for the routes of coderd's API that the operator uses."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from coder_k8s.coderd.connections import Connections, Response
from coder_k8s.coderd.errors import (
    Conflict,
    ErrorResponse,
    Invalid,
    NotSupported,
    Redirected,
    Unauthorized,
    Unavailable,
    from_response,
    sanitize,
)
from coder_k8s.coderd.types import (
    BuildInfo,
    CreatedKey,
    Entitlements,
    License,
    Organization,
    ProvisionerDaemon,
    ProvisionerKey,
    ProvisionerKeyList,
    ProxyRegistration,
    Regions,
    User,
    WorkspaceProxy,
)

T = TypeVar("T")

PATH_SAFE = "$&+,:;=@"
"""Characters that Go does not encode in a path, besides letters, digits and `-_.~`. If a path is not encoded exactly as
Go does it, coderd's router passes its segments to the handler without decoding them."""

_KEYS = "/api/v2/organizations/{}/provisionerkeys"
_PROXIES = "/api/v2/workspaceproxies"
DAEMON_LIMIT = 1000
"""The maximum number of listed daemons."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding; `RecursionError` if a response is nested too deeply."""


class Client:
    """A client for one URL and one token. It uses a shared connection pool, so it is cheap to create."""

    def __init__(self, connections: Connections, url: str, token: str = "") -> None:
        self._connections = connections
        self._url = url.rstrip("/")
        self._token = token

    @property
    def identity(self) -> tuple[str, str]:
        """The URL and a digest of the token, as a cache key."""
        return self._url, hashlib.sha256(self._token.encode()).hexdigest()

    async def build_info(self) -> BuildInfo:
        """Return the version of coderd."""
        return await self._call(BuildInfo, "GET", "/api/v2/buildinfo")

    async def me(self) -> User:
        """Return the user of the token; raise `Unauthorized` if the token is invalid."""
        return await self._call(User, "GET", "/api/v2/users/me")

    async def revoke_own_token(self) -> None:
        """Delete the token of this client."""
        await self._execute("DELETE", "/api/v2/users/me/keys/{}", self._token.partition("-")[0])

    async def entitlements(self) -> Entitlements:
        """Return what the licenses allow."""
        return await self._call(Entitlements, "GET", "/api/v2/entitlements")

    async def licenses(self) -> list[License]:
        """Return the stored licenses, valid or not."""
        return await self._call(list[License], "GET", "/api/v2/licenses")

    async def add_license(self, jwt: str) -> License:
        """Store a license; raise `Conflict` if it is already stored."""
        route, secrets = "/api/v2/licenses", (self._token, jwt)
        response = await self._send("POST", route, body={"license": jwt})
        if response.status == 500 and "duplicate key" in _error_response(response).detail:
            raise Conflict("coderd already has this license")
        return _decode(License, route, _checked(route, response, secrets))

    async def organization(self, name: str) -> Organization:
        """Return an organization by name or ID, or the `default` one."""
        return await self._call(Organization, "GET", "/api/v2/organizations/{}", name)

    async def provisioner_keys(self, organization: str) -> list[ProvisionerKey]:
        """Return the keys of an organization."""
        return (await self.list_provisioner_keys(organization)).keys

    async def list_provisioner_keys(self, organization: str) -> ProvisionerKeyList:
        """Return the keys of an organization and when coderd listed them, by the clock that sets `created_at`."""
        response = await self._send("GET", _KEYS, organization)
        found = _decode(list[ProvisionerKey], _KEYS, _checked(_KEYS, response, (self._token,)))
        return ProvisionerKeyList(found, _response_time(response))

    async def create_provisioner_key(self, organization: str, name: str, tags: Mapping[str, str]) -> str:
        """Create a key and return its secret, which coderd does not return again."""
        body = {"name": name, "tags": dict(tags)}
        return (await self._call(CreatedKey, "POST", _KEYS, organization, body=body)).key

    async def delete_provisioner_key(self, organization: str, name: str) -> None:
        """Delete a key by name."""
        await self._execute("DELETE", _KEYS + "/{}", organization, name)

    async def look_up_provisioner_key(self, secret: str) -> ProvisionerKey | None:
        """Return the key with this secret, or None if it does not exist."""
        if not secret or not _fits_header(secret):
            return None
        route = "/api/v2/provisionerkeys/{}"
        response = await self._send("GET", route, secret, headers={"Coder-Provisioner-Daemon-Key": secret})
        if response.status in (400, 401) and _error_response(response).message == "provisioner daemon key invalid":
            return None
        return _decode(ProvisionerKey, route, _checked(route, response, (self._token, secret)))

    async def provisioner_daemons(self, organization: str, *, offline: bool = True) -> list[ProvisionerDaemon]:
        """Return the provisioner daemons of an organization."""
        query = {"limit": str(DAEMON_LIMIT), "offline": str(offline).lower()}
        route = "/api/v2/organizations/{}/provisionerdaemons"
        return await self._call(list[ProvisionerDaemon], "GET", route, organization, query=query)

    async def workspace_proxies(self) -> list[WorkspaceProxy]:
        """Return all workspace proxies, coderd itself first."""
        return (await self._call(Regions, "GET", _PROXIES)).regions

    async def create_workspace_proxy(self, name: str, display_name: str, icon: str) -> ProxyRegistration:
        """Register a workspace proxy and return it with its token."""
        body = {"name": name, "display_name": display_name, "icon": icon}
        return await self._call(ProxyRegistration, "POST", _PROXIES, body=body)

    async def update_workspace_proxy(
        self, proxy_id: str, name: str, display_name: str, icon: str, *, regenerate_token: bool = False
    ) -> ProxyRegistration:
        """Update a workspace proxy and, if requested, its token; coderd requires all fields."""
        body = {
            "id": proxy_id,
            "name": name,
            "display_name": display_name,
            "icon": icon,
            "regenerate_token": regenerate_token,
        }
        return await self._call(ProxyRegistration, "PATCH", _PROXIES + "/{}", proxy_id, body=body)

    async def delete_workspace_proxy(self, name: str) -> None:
        """Delete a workspace proxy by name or ID."""
        await self._execute("DELETE", _PROXIES + "/{}", name)

    async def _call(
        self,
        kind: type[T],
        method: str,
        route: str,
        *names: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request and decode its response."""
        response = await self._send(method, route, *names, body=body, query=query)
        return _decode(kind, route, _checked(route, response, (self._token,)))

    async def _execute(self, method: str, route: str, *names: str) -> None:
        """Send a request and ignore its response, which must be JSON: another response is not from coderd."""
        if body := _checked(route, await self._send(method, route, *names), (self._token,)):
            _decode(object, route, body)

    async def _send(
        self,
        method: str,
        route: str,
        *names: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Insert the names into the route and send the request."""
        if not _fits_header(self._token):
            raise Unauthorized("the token contains invalid characters")
        request_headers = {"Coder-Session-Token": self._token, **(headers or {})}
        if body is not None:
            request_headers["Content-Type"] = "application/json"
        if not {"", ".", ".."}.isdisjoint(names):
            raise Invalid(f"{route}: not a valid name")  # a proxy that normalizes paths would change the route
        path = route.format(*(quote(name, safe=PATH_SAFE) for name in names))
        url = f"{self._url}{path}?{urlencode(query)}" if query else self._url + path
        content = None if body is None else msgspec.json.encode(body)
        try:
            return await self._connections.exchange(method, url, request_headers, content)
        except Unavailable as error:
            error.add_note(f"{method} {route}")
            raise


def _fits_header(secret: str) -> bool:
    return secret.isascii() and secret.isprintable()


def _checked(route: str, response: Response, secrets: tuple[str, ...]) -> bytes:
    """Return the body of a successful response; raise the typed error otherwise."""
    if 200 <= response.status < 300:
        return response.body
    if 300 <= response.status < 400:
        raise _redirected(route, response.headers.get("Location", ""))
    if response.status == 405:
        raise NotSupported(f"{route}: coderd does not support this method")
    raise from_response(response.status, response.headers.get("Retry-After"), _error_response(response), secrets)


def _redirected(route: str, location: str) -> Redirected:
    """Return the error for a redirect. It is not followed, because the token must not be sent to another server."""
    try:
        target = sanitize(str(URL(location).origin()))
    except ValueError:
        target = ""
    message = f"{route}: the response is a redirect, which is not followed; use the URL of coderd itself"
    return Redirected(message, target)


def _decode(kind: type[T], route: str, body: bytes) -> T:
    """Decode a response; Go sends null for an empty list."""
    try:
        return msgspec.json.decode(b"[]" if body.strip() == b"null" else body, type=kind)
    except DECODE_ERRORS as error:
        reason = str(error)
    raise Unavailable(f"{route}: invalid response: {reason}")


def _response_time(response: Response) -> datetime | None:
    """Return the `Date` of a response, in whole seconds."""
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _error_response(response: Response) -> ErrorResponse:
    """Decode an error response; raise `Unavailable` if it is not from coderd."""
    try:
        return msgspec.json.decode(response.body, type=ErrorResponse)
    except DECODE_ERRORS:
        pass
    raise Unavailable(f"HTTP {response.status} that is not from coderd")
