"""Listen addresses, as written on the command line."""

from typing import NamedTuple


class Address(NamedTuple):
    """A listen address; no host means all interfaces."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Parse `:8081`, `127.0.0.1:8081` or `[::]:8081`; return None for `0` or an empty string, which disable serving."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not a listen address: write HOST:PORT, :PORT, or 0 to disable it")
    return Address((host[1:-1] if bracketed else host) or None, int(port))
