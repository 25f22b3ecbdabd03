import datetime
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from coder_k8s.dev.certificates import Authority, Pair, signing_key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca", datetime.datetime.now(datetime.UTC))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Run a TLS handshake in memory; return the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting: list[Callable[[], None]] = [end.do_handshake for end in ends]
    while waiting:
        step = waiting.pop(0)
        try:
            step()
        except ssl.SSLWantReadError:
            waiting.append(step)
    return ends[1]


def contexts(authority: Authority, serving: Pair, client: Pair) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate)
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.load_cert_chain(serving.certificate, serving.key)
    client_side = ssl.create_default_context(cafile=authority.certificate)
    client_side.load_cert_chain(client.certificate, client.key)
    return server_side, client_side


@pytest.mark.parametrize("host", ["127.0.0.1", "web.default.svc"])
def test_client_and_server_trust_the_authority(authority: Authority, host: str) -> None:
    serving = authority.serving("web", ["127.0.0.1", "web.default.svc"])
    client = authority.client("jane", "jane", ["system:masters", "staff"])

    server_end = handshake(*contexts(authority, serving, client), host)

    certificate = server_end.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == (
        (("organizationName", "system:masters"),),
        (("organizationName", "staff"),),
        (("commonName", "jane"),),
    )


def test_another_host_is_rejected(authority: Authority) -> None:
    pairs = authority.serving("web", ["localhost"]), authority.client("jane", "jane")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(*contexts(authority, *pairs), "elsewhere")


def test_client_certificate_cannot_serve(authority: Authority) -> None:
    client = authority.client("jane", "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(*contexts(authority, client, client), "localhost")


def test_private_keys_are_private(authority: Authority, tmp_path: Path) -> None:
    keys = [authority.client("jane", "jane").key, signing_key(tmp_path, "service-account").key]
    assert [key.stat().st_mode & 0o777 for key in keys] == [0o600, 0o600]
