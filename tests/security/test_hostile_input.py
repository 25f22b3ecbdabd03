"""Any response of coderd, and any URL in a spec, is handled with a typed error and leaks no token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.coderd import database_url, errors
from coder_k8s.coderd.caller import decode, error_response
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections, Endpoint, Limits, Response
from coder_k8s.coderd.types import (
    BuildInfo,
    Entitlements,
    ProvisionerDaemon,
    ProvisionerKey,
    Regions,
    User,
    WorkspaceProxy,
)
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors as kube_errors
from tests.security.users import client_of

TOKEN = "AAAAAAAAAA-hostile0hostile0hostile0"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("id", "name", "message", "detail", "validations", "features", "regions", "key", "daemons", "metadata", "spec")
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON, max_size=4)
DEEP = {"lists": b"[" * 200_000, "objects": b'{"a":' * 200_000, "unknown": b'{"id":"1","x":' + b"[" * 200_000}
ANSWERS = (User, Entitlements, Regions, list[ProvisionerKey], list[ProvisionerDaemon])

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """Run a hostile server, and yield its URL."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:
            pass  # the client closed the connection, as expected
        finally:
            writer.close()

    listening = await asyncio.start_server(guarded, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def result_or_error(expected: type[Exception], call: Callable[[], object]) -> str:
    """The text of the expected error of a call, or of its result."""
    try:
        return repr(call())
    except expected as error:
        return str(error)


@given(st.sampled_from(ANSWERS), JSON | OBJECTS)
def test_any_json_is_decoded_or_rejected(kind: Any, answer: Any) -> None:
    text = result_or_error(errors.Unavailable, lambda: decode(kind, "/route", msgspec.json.encode(answer)))
    assert "\n" not in text


@given(st.binary())
def test_any_bytes_are_decoded_or_rejected(answer: bytes) -> None:
    for read in (lambda: decode(User, "/route", answer), lambda: error_response(Response(500, {}, answer))):
        try:
            read()
        except errors.Unavailable:
            continue


@pytest.mark.parametrize("answer", DEEP.values(), ids=DEEP)
def test_a_deep_response_is_rejected(answer: bytes) -> None:
    with pytest.raises(errors.Unavailable):
        error_response(Response(500, {}, answer))
    for kind in ANSWERS:
        with pytest.raises(errors.Unavailable):
            decode(kind, "/route", answer)


@given(st.text(), st.text())
def test_the_text_of_an_error_is_one_short_line(message: str, detail: str) -> None:
    problem = errors.ErrorResponse(message + TOKEN, detail)
    for status in (400, 401, 403, 404, 409, 429, 500):
        shown = str(errors.from_response(status, None, problem, (TOKEN,)))
        assert TOKEN not in shown
        assert shown.isprintable()
        assert len(shown) < 400


async def test_an_endless_response_is_rejected() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # data before a request would end the connection
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()

    async with server(serve) as url, Connections(limits=Limits(body=1 << 20)) as connections:
        with pytest.raises(errors.Unavailable, match="larger than"):
            await Client(connections, url, TOKEN).me()


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
async def test_a_slow_response_times_out(start: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # data before a request would end the connection
        writer.write(start)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with server(serve) as url, Connections(limits=Limits(total=0.3)) as connections:
        with pytest.raises(errors.Unavailable, match="no response within"):
            await Client(connections, url, TOKEN).me()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_does_not_send_the_token_to_another_server(status: int) -> None:
    received: list[bytes] = []

    async def record(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))

    async with server(record) as other, Connections() as connections:

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {status} Moved\r\nLocation: {other}/api/v2/users/me\r\n"
            writer.write(f"{head}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

        async with server(redirect) as url:
            with pytest.raises(errors.Unavailable, match="redirect"):
                await Client(connections, url, TOKEN).me()
            with pytest.raises(errors.Unavailable, match="redirect"):
                await Client(connections, url, TOKEN).add_license("license")
    assert received == []


@pytest.mark.parametrize("tail", ["/a\r\nX-Injected: 1", "/a b", "/a\nb", "/\0", "/é", "#x", "?a=b", "/a\tb"])
async def test_a_url_cannot_inject_a_header(tail: str) -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    async with server(serve) as url, Connections() as connections:
        with pytest.raises(errors.Unavailable):
            await Client(connections, url + tail, TOKEN).me()
    for request in received:
        line, *headers = request.split(b"\r\n")
        assert line.count(b" ") == 2
        assert b"\n" not in line
        assert not any(header.lower().startswith(b"x-injected") for header in headers)


@pytest.mark.parametrize("scheme", ["file", "ftp", "unix", "data", "javascript", "gopher"])
async def test_only_http_urls_are_supported(scheme: str) -> None:
    async with Connections() as connections:
        with pytest.raises(errors.Unavailable):
            await Client(connections, f"{scheme}:///etc/passwd", TOKEN).me()


async def test_a_route_applies_to_one_host_and_port() -> None:
    """A replacement endpoint for the Service of one control plane is not used for another name or port."""
    received = []

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))

    async with server(serve) as url:
        port = int(url.rpartition(":")[2])
        routes = {Endpoint("a.ns.svc.cluster.local", 80): Endpoint("127.0.0.1", port)}
        async with Connections(routes) as connections:
            for other in (
                "http://b.invalid",
                "http://a.ns.svc.cluster.local.invalid",
                "http://a.ns.svc.cluster.local:1",
            ):
                with pytest.raises(errors.Unavailable):
                    await Client(connections, other, TOKEN).me()
    assert received == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host",
        "//host",
        "http://",
        "http:///x",
        "http://a\r\nb",
        "http://[::1",
        "javascript:1",
    ],
)
async def test_an_invalid_url_is_rejected_at_admission(
    cluster: ClusterAccess, crds: None, namespace: str, url: str
) -> None:
    spec = {"bootstrap": {"coderURL": url, "credentialsSecretRef": {"name": "given"}}}
    async with client_of(cluster.kubeconfig) as admin:
        with pytest.raises(kube_errors.Invalid, match="must be an http or https URL"):
            await admin.create(WORKSPACE_PROXY, {"metadata": {"namespace": namespace, "name": "demo"}, "spec": spec})


@given(st.text())
def test_errors_of_database_urls_omit_the_password(text: str) -> None:
    url = f"postgres://user:hunter2hunter2@{text}"
    assert "hunter2" not in result_or_error(ValueError, lambda: database_url.parse(url))


@given(st.text(), st.text())
def test_texts_of_coderd_that_go_into_a_status_are_short_and_printable(text: str, filler: str) -> None:
    hostile = text + filler * 100
    daemon = {
        "id": "a",
        "name": "a",
        "key_id": "a",
        "created_at": "2026-01-01T00:00:00Z",
        "api_version": "1",
        "tags": {},
    }
    user = {"id": "a", "status": "active", "login_type": "none", "roles": [], "organization_ids": []}
    proxy = {"id": "a", "name": "a", "display_name": "a", "icon_url": "", "healthy": True}
    texts = [
        msgspec.convert({"version": hostile}, BuildInfo).version,
        msgspec.convert({**daemon, "version": hostile}, ProvisionerDaemon).version,
        msgspec.convert({**user, "username": hostile}, User).username,
        msgspec.convert({**proxy, "version": hostile}, WorkspaceProxy).version,
    ]
    for shown in texts:
        assert shown.isprintable()
        assert len(shown) < 400
