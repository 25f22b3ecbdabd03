"""A response is the same however its bytes are split."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.http.errors import Disconnected, HttpError, InvalidResponse, TooLarge
from coder_k8s.http.incoming import MAX_HEAD, Incoming

BODY = b'{"kind":"Status"}' * 20
GZIPPED = gzip.compress(BODY, mtime=0)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nRetry-After: 7\r\n\r\n"
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n"


def chunked(body: bytes, size: int = 50) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


def received(*parts: bytes, limit: int | None = None, eof: bool = True) -> Incoming:
    incoming = Incoming()
    incoming.expect(limit=limit)
    for part in parts:
        incoming.feed(part)
    if eof:
        incoming.feed_eof()
    return incoming


RESPONSES = {
    "sized": SIZED % len(BODY) + BODY,
    "chunked": CHUNKED + chunked(BODY),
    "gzip": (SIZED % len(GZIPPED)).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + GZIPPED,
    "gzip in chunks": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + chunked(GZIPPED, 7),
    "until the end": b"HTTP/1.1 200 OK\r\nRetry-After: 7\r\n\r\n" + BODY,
    "after an interim response": b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\n" + SIZED % len(BODY) + BODY,
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@given(data=st.data())
def test_any_split_is_the_same_response(response: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(response)), max_size=8)))
    parts = [response[start:end] for start, end in zip([0, *cuts], [*cuts, len(response)], strict=True)]
    incoming = received(*filter(None, parts))
    assert (incoming.status, incoming.headers["retry-after"], incoming.take()) == (200, "7", BODY)
    assert incoming.complete
    assert incoming.error is None


KEPT = [name for name in RESPONSES if name != "until the end"]


@given(names=st.lists(st.sampled_from(KEPT), min_size=2, max_size=4), data=st.data())
def test_the_responses_of_a_connection_are_independent(names: list[str], data: st.DataObject) -> None:
    incoming = Incoming()
    for name in names:
        response = RESPONSES[name]
        cut = data.draw(st.integers(0, len(response)))
        incoming.expect()
        for part in filter(None, (response[:cut], response[cut:])):
            incoming.feed(part)
        fresh = received(response, eof=False)
        assert (incoming.complete, incoming.keep_alive, incoming.error) == (True, True, None)
        assert (incoming.status, incoming.headers, incoming.take()) == (200, fresh.headers, BODY)


def test_the_response_after_a_tunnel_is_read_from_its_start() -> None:
    incoming = Incoming()
    incoming.expect(headers_only=True)
    incoming.feed(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert (incoming.complete, incoming.reason) == (True, "Connection established")
    incoming.expect()
    incoming.feed(RESPONSES["sized"])
    assert (incoming.complete, incoming.reason, incoming.take()) == (True, "OK", BODY)


def test_bytes_before_a_request_end_the_connection() -> None:
    incoming = Incoming()
    assert incoming.keep_alive
    incoming.feed(RESPONSES["sized"])
    assert not incoming.keep_alive


@pytest.mark.parametrize(
    ("response", "kept"),
    [
        (RESPONSES["sized"], True),
        (RESPONSES["chunked"], True),
        (RESPONSES["after an interim response"], True),
        (RESPONSES["until the end"], False),
        (RESPONSES["sized"] + b"more", False),
        (RESPONSES["sized"] + RESPONSES["sized"], False),
        (RESPONSES["sized"].replace(b"Retry-After: 7", b"Connection: close"), False),
        (RESPONSES["sized"].replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_which_connections_are_kept(response: bytes, kept: bool) -> None:
    incoming = received(response, eof=not kept)
    assert incoming.complete
    assert incoming.keep_alive is kept
    assert incoming.take() in (BODY, b"")


def test_bytes_after_the_response_end_the_connection() -> None:
    incoming = received(RESPONSES["sized"], eof=False)
    incoming.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    assert not incoming.keep_alive
    assert incoming.take() == BODY


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (b"", Disconnected),
        (b"HTTP/1.1 200 OK\r\n", Disconnected),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Disconnected),
        (SIZED % 100 + b"half", Disconnected),
        (CHUNKED + b"5\r\nhal", Disconnected),
        (b"garbage\r\n\r\n", InvalidResponse),
        (b"HTTP/1.1 999999 X\r\n\r\n", InvalidResponse),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", InvalidResponse),
        (CHUNKED + b"zz\r\n", InvalidResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", InvalidResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", InvalidResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", InvalidResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + GZIPPED[:20], InvalidResponse),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD, InvalidResponse),
        (GZIP % (2 * len(GZIPPED)) + GZIPPED + GZIPPED, InvalidResponse),
        (GZIP % (len(GZIPPED) + 1) + GZIPPED + b"x", InvalidResponse),
        (SIZED % 2001 + b"x" * 2001, TooLarge),
        (CHUNKED + chunked(b"x" * 2001), TooLarge),
    ],
)
def test_invalid_responses(response: bytes, error: type[HttpError]) -> None:
    incoming = received(response, limit=2000)
    assert type(incoming.error) is error
    assert not incoming.complete


@pytest.mark.parametrize(
    "endless",
    [b"2\r\n{}\r\n0\r\nX: " + b"x" * 1000, b"2\r\n{}\r\n0\r\n" + b"X: x\r\n" * 300, b"2;" + b"x" * 1000],
    ids=["a trailer", "trailers", "a chunk extension"],
)
def test_what_is_not_the_body_is_limited(endless: bytes) -> None:
    incoming = received(CHUNKED, endless, *[endless[-600:]] * (MAX_HEAD // 600 + 1), eof=False)
    assert isinstance(incoming.error, InvalidResponse)


def test_trailers_are_ignored() -> None:
    incoming = received(CHUNKED + b"2\r\n{}\r\n0\r\nRetry-After: 9\r\nX: y\r\n\r\n")
    assert incoming.complete
    assert incoming.headers == {"transfer-encoding": "chunked", "retry-after": "7"}


def test_a_small_body_that_decompresses_to_a_large_one() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    bomb = compressor.compress(bytes(200_000_000)) + compressor.flush()
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    incoming = received(head + bomb, limit=1_000_000)
    assert isinstance(incoming.error, TooLarge)
    assert incoming.buffered <= 1_000_000


@given(st.binary(max_size=300))
def test_any_bytes_are_a_response_or_an_error(data: bytes) -> None:
    incoming = received(data, limit=100)
    assert incoming.complete != (incoming.error is not None)


@given(st.binary(max_size=300))
def test_any_bytes_after_valid_headers(data: bytes) -> None:
    incoming = received(CHUNKED, data, limit=100)
    assert incoming.complete != (incoming.error is not None)
