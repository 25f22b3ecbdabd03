"""Credentials and TLS settings for the API server."""

import asyncio
import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from coder_k8s.kube.kubeconfig import ConfigError

FILE_REFRESH_INTERVAL = 60.0
"""Seconds after which a file is read again, because tokens and certificates are rotated."""

Clock = Callable[[], float]
"""Seconds since the epoch."""

Content = bytes | Path
"""Data, or the path of the file with the data."""


class Confidential(msgspec.Struct, frozen=True):
    """Has a repr without its values, because some are secrets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Credentials(Confidential, frozen=True):
    """The `Authorization` header and TLS context of a request."""

    authorization: str | None
    ssl: ssl.SSLContext | None


class Identity(Confidential, frozen=True):
    """An `Authorization` header, a client certificate with its key, both or neither.

    It is valid until `expires`, in seconds since the epoch.
    """

    origin: str
    expires: float
    authorization: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class CredentialProvider(Protocol):
    """Returns the current identity."""

    async def __call__(self) -> Identity: ...


class StaticCredentials(Confidential, frozen=True):
    """Reads an identity from a kubeconfig, from files that it names, or from the files of a service account."""

    origin: str
    clock: Clock
    token: Content | None = None
    basic: tuple[str, str] | None = None
    certificate: Content | None = None
    key: Content | None = None

    async def __call__(self) -> Identity:
        certificate = read(self.certificate, self.origin) if self.certificate else None
        key = read(self.key, self.origin) if self.key else None
        return Identity(self.origin, self.clock() + FILE_REFRESH_INTERVAL, self._authorization(), certificate, key)

    def _authorization(self) -> str | None:
        if self.token:
            origin = str(self.token) if isinstance(self.token, Path) else self.origin
            return bearer(read(self.token, self.origin), origin)
        if self.basic:
            return basic(*self.basic)
        return None


class TLSConfig(Confidential, frozen=True):
    """How to verify the API server: with its certificate authority, or with those of the system."""

    origin: str
    authority: Content | None = None
    insecure: bool = False

    def context(self, authority: bytes | None, identity: Identity) -> ssl.SSLContext:
        """Create a TLS context, with the client certificate of the identity if it has one."""
        try:
            context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.origin}: its certificate authority is not a PEM certificate") from error
        # Python 3.13 requires extensions that the CAs of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate and identity.key:
            _load_client_certificate(context, identity.certificate, identity.key, identity.origin)
        return context


class CredentialCache:
    """Caches credentials until they expire.

    Concurrent requests share one refresh. The TLS context is replaced only when its content changes, because the client
    pools connections by context.
    """

    def __init__(self, provider: CredentialProvider, tls: TLSConfig | None, clock: Clock) -> None:
        self._provider = provider
        self._tls = tls
        self._clock = clock
        self._lock = asyncio.Lock()
        self._cached: Credentials | ConfigError | None = None
        self._expires = 0.0
        self._context: ssl.SSLContext | None = None
        self._context_content: tuple[bytes | None, ...] = ()

    @property
    def current(self) -> Credentials | None:
        """The cached credentials, unless they have expired."""
        return self._cached if isinstance(self._cached, Credentials) and self._clock() < self._expires else None

    async def credentials(self, *, renew: bool = False) -> Credentials:
        cached = self._cached
        if not renew and (current := self.current) is not None:
            return current
        async with self._lock:
            if self._cached is None or self._cached is cached:
                self._cached = await self._refresh()
            if isinstance(self._cached, ConfigError):
                raise ConfigError(*self._cached.args) from self._cached
            return self._cached

    async def _refresh(self) -> Credentials | ConfigError:
        try:
            identity = await self._provider()
            if self._tls:
                self._update_context(self._tls, identity)
        except ConfigError as error:
            return error
        self._expires = identity.expires
        return Credentials(identity.authorization, self._context)

    def _update_context(self, tls: TLSConfig, identity: Identity) -> None:
        authority = read(tls.authority, tls.origin) if tls.authority else None
        content = (authority, identity.certificate, identity.key)
        if self._context is None or content != self._context_content:
            self._context = tls.context(authority, identity)
            self._context_content = content


def read(content: Content, origin: str) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as error:
        raise ConfigError(f"{origin}: cannot read {content}: {error.strerror}") from error


def bearer(token: bytes, origin: str) -> str:
    """Return the header for a token; raise if it contains white space, which could inject another header."""
    words = token.split()
    if len(words) != 1 or not token.isascii():
        raise ConfigError(f"{origin}: does not contain a token")
    return f"Bearer {words[0].decode()}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    import tempfile  # not needed in a cluster

    # The ssl module reads certificates from files only. This file is private and temporary.
    with tempfile.NamedTemporaryFile(prefix="coder-k8s-") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        try:
            # With an empty password an encrypted key fails, instead of prompting on the terminal.
            context.load_cert_chain(file.name, password="")
        except ssl.SSLError as error:
            raise ConfigError(f"{origin}: its client certificate and key are not a PEM pair") from error
