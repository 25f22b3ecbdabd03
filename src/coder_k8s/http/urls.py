"""The parts of a URL that a request needs."""

import base64
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from .errors import InvalidURL

PORTS = {"http": 80, "https": 443}


class Origin(msgspec.Struct, frozen=True):
    """A server: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as in a `Host` header, without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """Host and port as in a CONNECT request."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Target(NamedTuple):
    """A server and a path on it, with the credentials of the URL as an `Authorization` header."""

    origin: Origin
    path: str
    authorization: str = ""


def parse_url(url: str) -> Target:
    """Return the parts of an http or https URL, whose path and query are already encoded."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidURL("the URL contains invalid characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidURL("the URL has an invalid host or port") from None
    if parts.scheme not in PORTS or not host:
        raise InvalidURL("the URL is not an http or https URL with a host")
    origin = Origin(parts.scheme, host, PORTS[parts.scheme] if port is None else port)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(origin, path, _authorization(parts.netloc))


def _authorization(netloc: str) -> str:
    user, at, _ = netloc.rpartition("@")
    if not at:
        return ""
    name, _, password = user.partition(":")
    return "Basic " + base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
