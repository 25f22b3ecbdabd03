"""Why a request has no response.

    HttpError
    ├── InvalidURL        the request was not sent
    ├── CannotConnect     the request was not sent
    │   └── ProxyRefused
    ├── Disconnected      the connection ended before the response was complete
    ├── ResponseTimeout   the response is not complete in time; also a TimeoutError
    ├── IdleTimeout       a streaming response sent nothing for too long
    ├── InvalidResponse   the response is not HTTP, or has an unknown encoding
    └── TooLarge          the body exceeds the limit

The messages contain neither headers nor bodies nor passwords.
"""

UNTRUSTED = "its certificate is not valid"
"""In the message of `CannotConnect` if the certificate of the server cannot be verified."""


class HttpError(Exception):
    """A request has no response."""


class InvalidURL(HttpError):
    """The URL has no host, an unknown scheme or invalid characters."""


class CannotConnect(HttpError):
    """No connection to the server."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot connect to {host}:{port}: {reason}")
        self.reason = reason


class ProxyRefused(CannotConnect):
    """The proxy does not connect to the server."""


class Disconnected(HttpError):
    """The connection ended before the response was complete."""


class ResponseTimeout(HttpError, TimeoutError):
    """The response is not complete in time."""


class IdleTimeout(HttpError):
    """No part of a streaming response arrived in time."""


class InvalidResponse(HttpError):
    """The response is not HTTP, or its body cannot be decoded."""


class TooLarge(HttpError):
    """The body is larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the response is larger than {limit} bytes")
