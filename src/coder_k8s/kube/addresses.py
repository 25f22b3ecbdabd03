"""Addresses to listen on, as administrators write them."""

from typing import NamedTuple


class Address(NamedTuple):
    """Where a server listens; without a host on every interface."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """`:8081`, `127.0.0.1:8081` or `[::]:8081`; `0` and nothing at all mean: do not serve."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is no address to listen on: write HOST:PORT, :PORT, or 0 to switch it off")
    return Address((host[1:-1] if bracketed else host) or None, int(port))
