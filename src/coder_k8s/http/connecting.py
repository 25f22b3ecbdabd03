"""Opens connections: TCP to the first address that responds, the tunnel of a proxy, and TLS."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from .connection import Connection
from .errors import UNTRUSTED, CannotConnect, HttpError, ProxyRefused
from .urls import Origin

STAGGER = 0.25
"""Seconds after which the next address is tried, while earlier ones have not responded."""

AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy with the headers that it requires."""

    origin: Origin
    headers: tuple[tuple[str, str], ...] = ()


class Route(msgspec.Struct, frozen=True, cache_hash=True):
    """How to reach a server; connections with the same route are interchangeable."""

    origin: Origin
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name in the certificate of the server, if it is not the host."""
    proxy: Proxy | None = None

    @property
    def tunnels(self) -> bool:
        """Whether the proxy connects to the server; it forwards requests without TLS by itself."""
        return self.proxy is not None and self.origin.tls


async def connect(route: Route, connect_to: Mapping[Endpoint, Endpoint], seconds: float) -> Connection:
    """Open a connection. `seconds` is the time for TCP; `connect_to` has the addresses of some servers."""
    first = route.proxy.origin if route.proxy else route.origin
    endpoint = Endpoint(first.host, first.port)
    host, port = connect_to.get(endpoint, endpoint)
    try:
        async with asyncio.timeout(seconds):
            opened = await _open_socket(host, port)
    except TimeoutError:
        raise CannotConnect(first.host, first.port, f"no response within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise CannotConnect(first.host, first.port, _reason(error)) from None
    try:
        return await _establish(route, first, opened)
    except (OSError, ValueError) as error:
        raise CannotConnect(route.origin.host, route.origin.port, _reason(error)) from None


@cache
def default_context() -> ssl.SSLContext:
    """The TLS context with the certificate authorities of the system."""
    return ssl.create_default_context()


async def _establish(route: Route, first: Origin, opened: socket.socket) -> Connection:
    """Turn a socket to the first server, which may be a proxy, into a connection to the server."""
    loop, name = asyncio.get_running_loop(), route.server_name or route.origin.host
    inner = route.tls or (default_context() if route.origin.tls else None)
    outer, outer_name = (default_context(), first.host) if route.proxy else (inner, name)
    connection = Connection()
    try:
        await loop.create_connection(
            lambda: connection,
            sock=opened,
            ssl=outer if first.tls else None,
            server_hostname=outer_name if first.tls else None,
        )
        if route.tunnels and inner is not None:
            await _open_tunnel(connection, route)
            await _start_tls(connection, inner, name)
    except BaseException:
        connection.drop()
        raise
    return connection


async def _open_tunnel(connection: Connection, route: Route) -> None:
    """Ask the proxy to connect to the server."""
    assert route.proxy is not None  # noqa: S101
    address = route.origin.address
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}", *(f"{k}: {v}" for k, v in route.proxy.headers), "", ""]
    connection.send("\r\n".join(lines).encode("latin-1"), None, tunnel=True)
    try:
        response = await connection.head()
    except HttpError as error:
        raise CannotConnect(route.origin.host, route.origin.port, f"the proxy did not respond: {error}") from None
    if response.status != 200:
        answer = f"the proxy returned {response.status} {response.reason}".rstrip()
        raise ProxyRefused(route.origin.host, route.origin.port, answer)


async def _start_tls(connection: Connection, context: ssl.SSLContext, name: str) -> None:
    """Continue with TLS to the server, through the tunnel."""
    loop = asyncio.get_running_loop()
    transport = await loop.start_tls(connection.transport, connection, context, server_hostname=name)
    if transport is None:
        raise ConnectionResetError("the proxy closed the connection")
    connection.connection_made(transport)


async def resolve(host: str, port: int) -> Sequence[AddressInfo]:
    """Return the addresses of a host."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _open_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address that responds. The next one is tried at once after an error."""
    addresses = _alternating(await resolve(host, port))
    attempts: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while addresses or attempts:
            if addresses:
                attempts.add(asyncio.create_task(_connect_socket(addresses.pop(0))))
            done, attempts = await asyncio.wait(
                attempts, timeout=STAGGER if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                if (error := attempt.exception()) is None:
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_discard)
            attempt.cancel()
    raise errors[0] if errors else OSError(f"{host} has no address")


async def _connect_socket(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        if family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


def _discard(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _alternating(found: Sequence[AddressInfo]) -> list[AddressInfo]:
    """Order addresses by turns of their family, beginning with the first one."""
    first = [each for each in found if each[0] == found[0][0]]
    other = [each for each in found if each[0] != found[0][0]]
    mixed = [each for pair in zip(first, other, strict=False) for each in pair]
    return [*mixed, *first[len(other) :], *other[len(first) :]]


def _reason(error: OSError | ValueError) -> str:
    """Describe an error without the address, which the message has already."""
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
        return "the host name is not valid"  # it has an empty label, or one with more than 63 characters
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{UNTRUSTED}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
