"""The connection pool for coderd servers."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from types import TracebackType
from typing import Protocol, Self

import msgspec

from coder_k8s.coderd.errors import Unavailable
from coder_k8s.http.connecting import Endpoint as Endpoint
from coder_k8s.http.connecting import Route
from coder_k8s.http.connection import Response as Response
from coder_k8s.http.errors import CannotConnect, HttpError
from coder_k8s.http.pool import Pool, Request, encode_headers
from coder_k8s.http.urls import parse_url

HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "coder-k8s"}


class Limits(msgspec.Struct, frozen=True):
    """Limits of a call: connect and total timeout in seconds, size of the body in bytes, connections per server."""

    connect: float = 5
    total: float = 15
    body: int = 10 * 1024 * 1024
    connections: int = 8


class Transport(Protocol):
    """Sends a request and returns its response."""

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response: ...


class Connections:
    """Sends HTTP requests within limits, and connects to another address where configured.

    The pool limits connections per server, not in total, so a server that hangs does not block others.
    """

    def __init__(self, connect_to: Mapping[Endpoint, Endpoint] | None = None, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._pool = Pool(
            connect_timeout=self._limits.connect, connections=self._limits.connections, connect_to=connect_to
        )

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.__aexit__(kind, error, trace)

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and read its response."""
        host = "no host"
        try:
            origin, path, authorization = parse_url(url)
            host = origin.host
            sent = {**HEADERS, **headers}
            if authorization:
                sent["Authorization"] = authorization
            return await self._pool.exchange(
                Route(origin),
                Request(method, path, encode_headers(sent), body),
                self._limits.total,
                self._limits.body,
            )
        except TimeoutError:
            reason = f"no response within {self._limits.total:g} s"
        except CannotConnect as error:
            reason = f"cannot connect: {error.reason}"
        except (HttpError, OSError) as error:
            reason = str(error) or type(error).__name__
        raise Unavailable(f"{host}: {reason}")


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
