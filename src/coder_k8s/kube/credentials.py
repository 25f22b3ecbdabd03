"""Who we are to the API server, and how we know that it is the right one."""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from coder_k8s.kube.kubeconfig import ConfigError

REREAD = 60.0
"""Seconds after which a file is read again: tokens and certificates are exchanged while we run."""

Clock = Callable[[], float]
"""Seconds since the epoch."""

Content = bytes | Path
"""Something as it is, or the file that holds it."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """What goes with a request."""

    authorization: str | None
    ssl: ssl.SSLContext | None


@dataclass(frozen=True, repr=False)
class Identity:
    """Who we say we are: an `Authorization` header, a client certificate with its key, both or neither.

    After `until`, in seconds since the epoch, it must be asked for again.
    """

    origin: str
    until: float
    authorization: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class Login(Protocol):
    """Where an identity comes from."""

    async def __call__(self) -> Identity: ...


@dataclass(frozen=True, repr=False)
class StaticCredentials:
    """An identity that stands in a kubeconfig, in files that it names, or in those of a service account."""

    origin: str
    clock: Clock
    token: Content | None = None
    basic: tuple[str, str] | None = None
    certificate: Content | None = None
    key: Content | None = None

    async def __call__(self) -> Identity:
        certificate = read(self.certificate, self.origin) if self.certificate else None
        key = read(self.key, self.origin) if self.key else None
        return Identity(self.origin, self.clock() + REREAD, self._authorization(), certificate, key)

    def _authorization(self) -> str | None:
        if self.token:
            origin = str(self.token) if isinstance(self.token, Path) else self.origin
            return bearer(read(self.token, self.origin), origin)
        if self.basic:
            return basic(*self.basic)
        return None


@dataclass(frozen=True, repr=False)
class TLSConfig:
    """By what we know the API server: a CA of its own, or else those of the system."""

    origin: str
    authority: Content | None = None
    insecure: bool = False

    def context(self, authority: bytes | None, identity: Identity) -> ssl.SSLContext:
        """TLS settings that also show our client certificate, if we have one."""
        try:
            context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        except (ssl.SSLError, UnicodeDecodeError) as trouble:
            raise ConfigError(f"{self.origin}: its certificate authority is not a PEM certificate") from trouble
        # Newer Python demands extensions that the CAs of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate and identity.key:
            _show(context, identity.certificate, identity.key, identity.origin)
        return context


class CredentialCache:
    """Keeps credentials for as long as they are good.

    Requests come many at a time: one of them asks for new credentials, the others wait and share its answer. The TLS
    settings stay the same object while their content does, because connections are pooled by them.
    """

    def __init__(self, login: Login, trust: TLSConfig | None, clock: Clock) -> None:
        self._login = login
        self._trust = trust
        self._clock = clock
        self._lock = asyncio.Lock()
        self._answer: Credentials | ConfigError | None = None
        self._until = 0.0
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[bytes | None, ...] = ()

    async def credentials(self, *, renew: bool = False) -> Credentials:
        answer = self._answer
        if isinstance(answer, Credentials) and not renew and self._clock() < self._until:
            return answer
        async with self._lock:
            if self._answer is None or self._answer is answer:
                self._answer = await self._ask()
            if isinstance(self._answer, ConfigError):
                raise ConfigError(*self._answer.args) from self._answer
            return self._answer

    async def _ask(self) -> Credentials | ConfigError:
        try:
            identity = await self._login()
            if self._trust:
                self._update_context(self._trust, identity)
        except ConfigError as trouble:
            return trouble
        self._until = identity.until
        return Credentials(identity.authorization, self._context)

    def _update_context(self, trust: TLSConfig, identity: Identity) -> None:
        authority = read(trust.authority, trust.origin) if trust.authority else None
        content = (authority, identity.certificate, identity.key)
        if self._context is None or content != self._made_of:
            self._context = trust.context(authority, identity)
            self._made_of = content


def read(content: Content, origin: str) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as trouble:
        raise ConfigError(f"{origin}: cannot read {content}: {trouble.strerror}") from trouble


def bearer(token: bytes, origin: str) -> str:
    """The header for a token, which must be one word: anything else would be another header, or nothing."""
    words = token.split()
    if len(words) != 1 or not token.isascii():
        raise ConfigError(f"{origin}: does not hold a token")
    return f"Bearer {words[0].decode()}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    # The library reads them from a file only; this one is ours alone and gone when it was read.
    with tempfile.NamedTemporaryFile(prefix="coder-k8s-") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        try:
            # An encrypted key fails with no password rather than asks for one at the terminal.
            context.load_cert_chain(file.name, password="")
        except ssl.SSLError as trouble:
            raise ConfigError(f"{origin}: its client certificate and key are not a PEM pair") from trouble
