from collections.abc import Iterator

import pytest

from coder_k8s.dev.node.local import NoAddress, Range, ServicePort, localize, loopback, services
from coder_k8s.kube.objects import Key

CODER = ServicePort(Key("coder", "plane"), 80)
SECURE = ServicePort(Key("coder", "plane"), 443)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("--http-address=0.0.0.0:8080", "--http-address=127.5.6.7:8080"),
        ("0.0.0.0", "127.5.6.7"),  # noqa: S104 - a text, not an address to bind
        ("10.0.0.0.0", "10.0.0.0.0"),
        ("[::]:8080", "127.5.6.7:8080"),
        (":8080", "127.5.6.7:8080"),
        ("--listen=:8080", "--listen=127.5.6.7:8080"),
        ("coder:8080", "coder:8080"),
        ("http://plane.coder.svc.cluster.local:80/api", "http://127.0.0.1:9000/api"),
        ("http://plane.coder.svc", "http://127.0.0.1:9000"),
        ("https://plane.coder.svc.cluster.local", "https://127.0.0.1:9001"),
        ("http://plane.coder.svc.example.com", "http://plane.coder.svc.example.com"),
        ("http://coder.example.com", "http://coder.example.com"),
        ("/etc/tls/tls.crt,/etc/tls/tls.key", "/pod/tls/tls.crt,/pod/tls/tls.key"),
        ("--file=/etc/tls/ca/one.crt", "--file=/pod/ca/one.crt"),
        ("/etc/tlsx /my/etc/tls", "/etc/tlsx /my/etc/tls"),
    ],
)
def test_words_of_a_container(text: str, replaced: str) -> None:
    paths = {"/etc/tls": "/pod/tls", "/etc/tls/ca": "/pod/ca"}
    forwarded = {CODER: "127.0.0.1:9000", SECURE: "127.0.0.1:9001"}
    assert localize(text, "127.5.6.7", paths, forwarded) == replaced


def test_services_of_urls_are_found() -> None:
    texts = ["http://plane.coder.svc:80", "x", "https://plane.coder.svc http://a.b.svc.cluster.local:7080/x"]
    assert services(texts) == {CODER, SECURE, ServicePort(Key("b", "a"), 7080)}


def test_address_on_this_machine_is_in_the_loopback_range() -> None:
    assert loopback("10.5.6.7") == "127.5.6.7"


def numbers(*values: int) -> Iterator[int]:
    yield from values


def test_two_nodes_never_share_a_range() -> None:
    first = Range(lambda below: below - 2)
    draws = numbers(252, 254, 95, 1, 251, 9)  # the range of the first node, that of the Services, and a free one
    second = Range(lambda _: next(draws))
    try:
        assert (first.node, second.node) == ("10.253.254.1", "10.252.9.1")
    finally:
        first.close()
        second.close()


def test_addresses_of_a_range_are_used_again() -> None:
    addresses = Range(lambda below: below - 3)
    try:
        taken = [addresses.take() for _ in range(253)]
        assert len(set(taken)) == 253
        with pytest.raises(NoAddress):
            addresses.take()
        addresses.free(taken[7])
        assert addresses.take() == taken[7]
    finally:
        addresses.close()
