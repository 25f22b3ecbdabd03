"""The connection pool for coderd servers."""

import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from coder_k8s.coderd.errors import Unavailable


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class Limits(msgspec.Struct, frozen=True):
    """Limits of a call: connect and total timeout in seconds, size of the body in bytes, connections per server."""

    connect: float = 5
    total: float = 15
    body: int = 8 * 1024 * 1024
    connections: int = 8


class Response(NamedTuple):
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Sends HTTP requests within limits, and connects to another address where configured.

    The pool limits connections per server, not in total, so a server that hangs does not block others.
    """

    def __init__(self, connect_to: Mapping[Endpoint, Endpoint] | None = None, limits: Limits | None = None) -> None:
        self._connect_to = connect_to or {}
        self._limits = limits or Limits()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        limits = self._limits
        resolver = _ConnectTo(self._connect_to)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=limits.connections, resolver=resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "coder-k8s"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and read its response.

        The error is raised outside of the handlers because aiohttp's exceptions contain the request with its token.
        """
        if not url.isprintable() or " " in url:
            raise Unavailable("the URL contains invalid characters")
        try:
            return await self._exchange(method, url, headers, body)
        except TimeoutError:
            reason = f"no response within {self._limits.total:g} s"
        except aiohttp.ClientConnectorError as error:
            reason = f"cannot connect: {error.strerror or type(error.os_error).__name__}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = type(error).__name__
        raise Unavailable(f"{_host(url)}: {reason}")

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        target = URL(url, encoded=True)
        async with self._session.request(method, target, headers=headers, data=body, allow_redirects=False) as response:
            content = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                content += chunk
                if len(content) > self._limits.body:
                    raise Unavailable(f"the response is larger than {self._limits.body} bytes")
            return Response(response.status, response.headers, bytes(content))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "no host"
    except ValueError:
        return "invalid host"


class _ConnectTo(AbstractResolver):
    """Resolves some host names to configured addresses; TLS and the Host header keep the original name."""

    def __init__(self, routes: Mapping[Endpoint, Endpoint]) -> None:
        self._routes = routes
        self._resolver = aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        endpoint = Endpoint(host, port)
        return await self._resolver.resolve(*self._routes.get(endpoint, endpoint), family)

    async def close(self) -> None:
        await self._resolver.close()


def parse_connect_to(entries: Iterable[str]) -> dict[Endpoint, Endpoint]:
    """Parse entries of the form HOST:PORT=ADDR:PORT; HOST must be a name, because addresses are not resolved."""
    routes = {}
    for entry in entries:
        original, equals, target = entry.partition("=")
        if not equals:
            raise ValueError(f"{entry!r} is not of the form HOST:PORT=ADDR:PORT")
        source = _endpoint(original)
        if _is_address(source.host):
            raise ValueError(f"{source.host!r} is an IP address: HOST must be a host name")
        routes[source] = _endpoint(target)
    return routes


def _endpoint(text: str) -> Endpoint:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return Endpoint(host.removeprefix("[").removesuffix("]").lower(), int(port))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
