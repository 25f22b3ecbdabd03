"""The calls of coderd's API that the operator makes."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from coder_k8s.coderd.connections import Connections, Reply
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
    DatedKeys,
    Entitlements,
    License,
    Organization,
    ProvisionerDaemon,
    ProvisionerKey,
    ProxyRegistration,
    Regions,
    User,
    WorkspaceProxy,
)

T = TypeVar("T")

PATH_SAFE = "$&+,:;=@"
"""What Go leaves as it is in a path, beside letters, digits and `-_.~`. coderd's router hands a part of a path to the
handler still encoded unless the whole path is encoded exactly as Go does it."""

_KEYS = "/api/v2/organizations/{}/provisionerkeys"
_PROXIES = "/api/v2/workspaceproxies"
DAEMON_LIMIT = 1000
"""More daemons than this are not listed."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding fails with; the last when an answer is nested without end."""


class Client:
    """coderd at one URL, seen with one token; cheap to make, holds no connection of its own."""

    def __init__(self, connections: Connections, url: str, token: str = "") -> None:
        self._connections = connections
        self._url = url.rstrip("/")
        self._token = token

    @property
    def identity(self) -> tuple[str, str]:
        """Which server as whom, in a form that may be kept: the token is only a digest."""
        return self._url, hashlib.sha256(self._token.encode()).hexdigest()

    async def build_info(self) -> BuildInfo:
        """Which version answers."""
        return await self._call(BuildInfo, "GET", "/api/v2/buildinfo")

    async def me(self) -> User:
        """The user of the token, which proves that the token works."""
        return await self._call(User, "GET", "/api/v2/users/me")

    async def revoke_own_token(self) -> None:
        """Delete the token of this client, which ends it."""
        await self._do("DELETE", "/api/v2/users/me/keys/{}", self._token.partition("-")[0])

    async def entitlements(self) -> Entitlements:
        """What the licenses allow."""
        return await self._call(Entitlements, "GET", "/api/v2/entitlements")

    async def licenses(self) -> list[License]:
        """The stored licenses, valid or not."""
        return await self._call(list[License], "GET", "/api/v2/licenses")

    async def add_license(self, jwt: str) -> License:
        """Store a license; `Conflict` when it is stored already."""
        route, secrets = "/api/v2/licenses", (self._token, jwt)
        reply = await self._send("POST", route, body={"license": jwt})
        if reply.status == 500 and "duplicate key" in _problem(reply).detail:
            raise Conflict("coderd has this license already")
        return _decode(License, route, _checked(route, reply, secrets))

    async def organization(self, name: str) -> Organization:
        """The organization of that name or id, or the `default` one."""
        return await self._call(Organization, "GET", "/api/v2/organizations/{}", name)

    async def provisioner_keys(self, organization: str) -> list[ProvisionerKey]:
        """The keys of an organization."""
        return (await self.dated_provisioner_keys(organization)).keys

    async def dated_provisioner_keys(self, organization: str) -> DatedKeys:
        """The keys of an organization, and when coderd listed them; `created_at` of a key is by the same clock."""
        reply = await self._send("GET", _KEYS, organization)
        found = _decode(list[ProvisionerKey], _KEYS, _checked(_KEYS, reply, (self._token,)))
        return DatedKeys(found, _date(reply))

    async def create_provisioner_key(self, organization: str, name: str, tags: Mapping[str, str]) -> str:
        """Make a key and return its secret, which cannot be had again."""
        body = {"name": name, "tags": dict(tags)}
        return (await self._call(CreatedKey, "POST", _KEYS, organization, body=body)).key

    async def delete_provisioner_key(self, organization: str, name: str) -> None:
        """Delete a key by name."""
        await self._do("DELETE", _KEYS + "/{}", organization, name)

    async def look_up_provisioner_key(self, secret: str) -> ProvisionerKey | None:
        """The key that a secret belongs to; None when coderd knows no such key."""
        if not secret or not _fits_header(secret):
            return None
        route = "/api/v2/provisionerkeys/{}"
        reply = await self._send("GET", route, secret, headers={"Coder-Provisioner-Daemon-Key": secret})
        if reply.status in (400, 401) and _problem(reply).message == "provisioner daemon key invalid":
            return None
        return _decode(ProvisionerKey, route, _checked(route, reply, (self._token, secret)))

    async def provisioner_daemons(self, organization: str, *, offline: bool = True) -> list[ProvisionerDaemon]:
        """The provisioner daemons of an organization."""
        query = {"limit": str(DAEMON_LIMIT), "offline": str(offline).lower()}
        route = "/api/v2/organizations/{}/provisionerdaemons"
        return await self._call(list[ProvisionerDaemon], "GET", route, organization, query=query)

    async def workspace_proxies(self) -> list[WorkspaceProxy]:
        """All workspace proxies, coderd itself first."""
        return (await self._call(Regions, "GET", _PROXIES)).regions

    async def create_workspace_proxy(self, name: str, display_name: str, icon: str) -> ProxyRegistration:
        """Register a workspace proxy; the answer has its token."""
        body = {"name": name, "display_name": display_name, "icon": icon}
        return await self._call(ProxyRegistration, "POST", _PROXIES, body=body)

    async def update_workspace_proxy(
        self, proxy_id: str, name: str, display_name: str, icon: str, *, regenerate_token: bool = False
    ) -> ProxyRegistration:
        """Change a workspace proxy, and its token when asked to; coderd wants all fields each time."""
        body = {
            "id": proxy_id,
            "name": name,
            "display_name": display_name,
            "icon": icon,
            "regenerate_token": regenerate_token,
        }
        return await self._call(ProxyRegistration, "PATCH", _PROXIES + "/{}", proxy_id, body=body)

    async def delete_workspace_proxy(self, name: str) -> None:
        """Deregister a workspace proxy by name or id."""
        await self._do("DELETE", _PROXIES + "/{}", name)

    async def _call(
        self,
        kind: type[T],
        method: str,
        route: str,
        *names: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Make a call that is answered by a value."""
        reply = await self._send(method, route, *names, body=body, query=query)
        return _decode(kind, route, _checked(route, reply, (self._token,)))

    async def _do(self, method: str, route: str, *names: str) -> None:
        """Make a call whose answer says nothing of interest, but must be coderd's: what it did not hear is not done."""
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
    ) -> Reply:
        """Fill the names into the route and send the request."""
        if not _fits_header(self._token):
            raise Unauthorized("the token has characters that no token has")
        sent = {"Coder-Session-Token": self._token, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if not {"", ".", ".."}.isdisjoint(names):
            raise Invalid(f"{route}: not a name of anything")  # whoever tidies up paths would read another one
        path = route.format(*(quote(name, safe=PATH_SAFE) for name in names))
        url = f"{self._url}{path}?{urlencode(query)}" if query else self._url + path
        content = None if body is None else msgspec.json.encode(body)
        try:
            return await self._connections.exchange(method, url, sent, content)
        except Unavailable as error:
            error.add_note(f"{method} {route}")
            raise


def _fits_header(secret: str) -> bool:
    return secret.isascii() and secret.isprintable()


def _checked(route: str, reply: Reply, secrets: tuple[str, ...]) -> bytes:
    """The content of a good answer; raises what any other answer means."""
    if 200 <= reply.status < 300:
        return reply.body
    if 300 <= reply.status < 400:
        raise _redirected(route, reply.headers.get("Location", ""))
    if reply.status == 405:
        raise NotSupported(f"{route}: coderd does not know this method")
    raise from_response(reply.status, reply.headers.get("Retry-After"), _problem(reply), secrets)


def _redirected(route: str, location: str) -> Redirected:
    """A redirect is not followed: the token is for the server that was asked. Only the host of its target is shown."""
    try:
        target = sanitize(str(URL(location).origin()))
    except ValueError:
        target = ""
    words = f"{route}: answered by a redirect, which is not followed: give the URL of coderd itself"
    return Redirected(words, target)


def _decode(kind: type[T], route: str, body: bytes) -> T:
    """Read an answer; Go sends null for a list that it never filled."""
    try:
        return msgspec.json.decode(b"[]" if body.strip() == b"null" else body, type=kind)
    except UNREADABLE as error:
        reason = str(error)
    raise Unavailable(f"{route}: the answer cannot be read: {reason}")


def _date(reply: Reply) -> datetime | None:
    """When an answer was given, in whole seconds."""
    try:
        return parsedate_to_datetime(reply.headers.get("Date", "")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _problem(reply: Reply) -> ErrorResponse:
    """What an error answer says; anything that is not coderd's own form comes from something in between."""
    try:
        return msgspec.json.decode(reply.body, type=ErrorResponse)
    except UNREADABLE:
        pass
    raise Unavailable(f"HTTP {reply.status} that is not from coderd")
