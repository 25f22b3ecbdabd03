"""Every response, valid or not, becomes a result or a typed error."""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from coder_k8s.dev.processes import free_port
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client, WatchEvent
from coder_k8s.kube.credentials import CredentialCache, StaticCredentials, TLSConfig
from coder_k8s.kube.http import MAX_ATTEMPTS, MAX_RETRY_AFTER, Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.api import (
    Api,
    Responder,
    config_map,
    cut,
    event,
    listing,
    plain_config,
    refuse,
    reply,
    status,
    watch,
)
from tests.support.metrics import sample_value

KEY = Key("default", "a")
SEEN = Unstructured.decode(b'{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"1"}}')
HTML = b"<!doctype html>\n<title>Sign in</title>\n"

WRITES: dict[str, Callable[[Client], Any]] = {
    "create": lambda client: client.create(CONFIG_MAP, config_map("a")),
    "apply": lambda client: client.apply(CONFIG_MAP, config_map("a")),
    "replace": lambda client: client.replace(CONFIG_MAP, config_map("a")),
    "merge": lambda client: client.merge(CONFIG_MAP, KEY, {}),
    "patch": lambda client: client.patch(CONFIG_MAP, KEY, []),
    "status": lambda client: client.merge(CONFIG_MAP, KEY, {}, "status"),
    "delete": lambda client: client.delete(CONFIG_MAP, SEEN),
}
EVERY_WRITE = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def requests(metrics: Metrics, code: str, method: str = "GET") -> float:
    return sample_value(metrics.registry, "rest_client_requests_total", code=code, method=method) or 0


@asynccontextmanager
async def connected(api: Api, metrics: Metrics, fence: Callable[[], None] | None = None) -> AsyncIterator[Client]:
    async with api, Http(api.config, "test", metrics) as http:
        yield Client(http, "test", fence)


async def silent(_: web.Request) -> web.Response:
    """Sends no headers."""
    await asyncio.Event().wait()
    raise AssertionError


async def watched(client: Client, idle_timeout: float = 5) -> list[WatchEvent]:
    return [seen async for seen in client.watch(CONFIG_MAP, "default", "1", seconds=60, idle_timeout=idle_timeout)]


@pytest.mark.parametrize(
    ("responder", "expected", "message"),
    [
        (refuse(400, "BadRequest", "no such field"), errors.Invalid, "no such field"),
        (refuse(401, "Unauthorized", "no valid token"), errors.Unauthorized, "no valid token"),
        (refuse(403, "Forbidden", "no permission"), errors.Forbidden, "no permission"),
        (refuse(404, "NotFound", "no such object"), errors.NotFound, "no such object"),
        (refuse(409, "Conflict", "changed"), errors.Conflict, "changed"),
        (refuse(409, "AlreadyExists", "taken"), errors.AlreadyExists, "taken"),
        (refuse(410, "Expired", "too old"), errors.Gone, "too old"),
        (refuse(422, "Invalid", "too long"), errors.Invalid, "too long"),
        (refuse(500, "InternalError", "etcd failed"), errors.ServerError, "etcd failed"),
        (refuse(503, "ServiceUnavailable", "not yet"), errors.ServerError, "not yet"),
        (refuse(504, "Timeout"), errors.ServerError, "Timeout"),
        (reply(HTML, 502), errors.ServerError, "HTTP 502 with a body that is not a Kubernetes Status"),
        (
            reply(b'{"message":"\xff"}', 500),
            errors.ServerError,
            "HTTP 500 with a body that is not a Kubernetes Status",
        ),
        (reply(b"404 page not found\n", 404), errors.NotFound, "HTTP 404"),
        (reply(b"", 404), errors.ServerError, "HTTP 404 with a body that is not a Kubernetes Status"),
        (reply(HTML, 404), errors.ServerError, "HTTP 404 with a body that is not a Kubernetes Status"),
        (reply(HTML), errors.ServerError, "not a valid Kubernetes response"),
        (reply(b'{"metadata":'), errors.ServerError, "not a valid Kubernetes response"),
        (reply(b'{"metadata":{"name":"\xff"}}'), errors.ServerError, "not a valid Kubernetes response"),
        (reply([1, 2, 3]), errors.ServerError, "not a valid Kubernetes response"),
        (reply({"kind": "ConfigMap"}), errors.ServerError, "not a valid Kubernetes response"),
        (reply(b"", 302, {"Location": "/elsewhere"}), errors.ServerError, "HTTP 302"),
        (cut(), errors.Unreachable, "GET /api/v1/namespaces/default/configmaps/a"),
        (cut(b'{"metadata":'), errors.Unreachable, "GET /api/v1/namespaces/default/configmaps/a"),
        (cut(b'{"metadata":', status=500), errors.Unreachable, "GET /api/v1/namespaces/default/configmaps/a"),
    ],
)
async def test_each_response_has_its_error(
    metrics: Metrics, responder: Responder, expected: type[errors.KubeError], message: str
) -> None:
    async with connected(Api(responder), metrics) as client:
        with pytest.raises(errors.KubeError) as raised:
            await client.get(CONFIG_MAP, KEY)
    assert type(raised.value) is expected
    assert message in str(raised.value)


async def test_a_redirect_is_not_followed(metrics: Metrics) -> None:
    api = Api(reply(b"", 307, {"Location": "/elsewhere"}))
    async with connected(api, metrics) as client:
        with pytest.raises(errors.ServerError):
            await client.get(CONFIG_MAP, KEY)
    assert [seen.path for seen in api.requests] == ["/api/v1/namespaces/default/configmaps/a"]


@pytest.mark.parametrize(
    ("code", "body", "header", "after"),
    [
        (429, b"", None, 1.0),
        (429, b"", "7", 7.0),
        (429, b"", "0", 0.0),
        (503, b"", "3", 3.0),
        (429, b'{"details":{"retryAfterSeconds":2}}', None, 2.0),
        (503, b'{"details":{"retryAfterSeconds":2}}', None, 2.0),
        (429, b'{"details":{"retryAfterSeconds":2}}', "4", 4.0),
        (429, b"", "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
    ],
)
def test_retry_after(code: int, body: bytes, header: str | None, after: float) -> None:
    error = errors.from_response(code, body, header)
    assert isinstance(error, errors.Throttled)
    assert error.after == after


@pytest.mark.parametrize("code", [429, 503])
@EVERY_WRITE
async def test_a_throttled_write_is_retried_after_the_delay(
    metrics: Metrics, code: int, write: Callable[[Client], Any]
) -> None:
    wait_ms = 50
    api = Api(refuse(code, after=wait_ms / 1000), refuse(code, header="0"), reply(config_map("a", 5)))
    async with connected(api, metrics) as client:
        await write(client)
    first, second, third = api.requests
    assert second.at_ms - first.at_ms >= wait_ms
    assert first.body == second.body == third.body
    assert (requests(metrics, str(code), first.method), requests(metrics, "200", first.method)) == (2, 1)


async def test_attempts_are_limited(metrics: Metrics) -> None:
    api = Api(refuse(429, "TooManyRequests", "slow down", after=0.01))
    async with connected(api, metrics) as client:
        with pytest.raises(errors.Throttled, match="slow down") as raised:
            await client.get(CONFIG_MAP, KEY)
    assert raised.value.after == 0.01
    assert len(api.requests) == MAX_ATTEMPTS


@pytest.mark.parametrize("code", [429, 503])
async def test_a_long_retry_after_is_raised(metrics: Metrics, code: int) -> None:
    api = Api(refuse(code, header=str(int(MAX_RETRY_AFTER) + 1)))
    async with connected(api, metrics) as client:
        with pytest.raises(errors.Throttled) as raised:
            await client.get(CONFIG_MAP, KEY)
    assert raised.value.after == MAX_RETRY_AFTER + 1
    assert len(api.requests) == 1


@EVERY_WRITE
async def test_the_fence_blocks_a_write(metrics: Metrics, write: Callable[[Client], Any]) -> None:
    def fence() -> None:
        raise errors.NotLeading("lost")

    api = Api(reply(config_map("a", 5)))
    async with connected(api, metrics, fence) as client:
        with pytest.raises(errors.NotLeading):
            await write(client)
        assert api.requests == []
        await client.get(CONFIG_MAP, KEY)


@EVERY_WRITE
async def test_the_fence_blocks_a_retry(metrics: Metrics, write: Callable[[Client], Any]) -> None:
    leading = [True, False]

    def fence() -> None:
        if not leading.pop(0):
            raise errors.NotLeading("lost while waiting")

    api = Api(refuse(429, after=0), reply(config_map("a", 5)))
    async with connected(api, metrics, fence) as client:
        with pytest.raises(errors.NotLeading):
            await write(client)
    assert len(api.requests) == 1


@EVERY_WRITE
async def test_a_write_without_a_response_is_not_retried(metrics: Metrics, write: Callable[[Client], Any]) -> None:
    api = Api(reply(config_map("a", 5)), cut(), reply(config_map("a", 6)))
    async with connected(api, metrics) as client:
        await client.get(CONFIG_MAP, KEY)  # the write reuses its connection
        with pytest.raises(errors.Unreachable):
            await write(client)
        assert len(api.requests) == 2
        assert (await client.get(CONFIG_MAP, KEY)).metadata.resource_version == "6"


async def test_rejected_credentials_are_refreshed_once(metrics: Metrics, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def rotate_token(_: Any) -> Any:
        token.write_text("new")
        return await refuse(401, "Unauthorized")(_)

    api = Api(rotate_token, reply(config_map("a", 5)), refuse(401, "Unauthorized"))
    async with api, Http(plain_config(api.port, token), "test", metrics) as http:
        client = Client(http, "test")
        assert (await client.get(CONFIG_MAP, KEY)).metadata.resource_version == "5"
        with pytest.raises(errors.Unauthorized):
            await client.get(CONFIG_MAP, KEY)
    sent = [seen.headers["Authorization"] for seen in api.requests]
    assert sent == ["Bearer old", "Bearer new", "Bearer new", "Bearer new"]


async def test_a_watch_refreshes_rejected_credentials(metrics: Metrics, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def rotate_token(_: Any) -> Any:
        token.write_text("new")
        return await refuse(401, "Unauthorized")(_)

    api = Api(rotate_token, watch(event("ADDED", config_map("a")), ending="end"))
    async with api, Http(plain_config(api.port, token), "test", metrics) as http:
        assert len(await watched(Client(http, "test"))) == 1
    assert [seen.headers["Authorization"] for seen in api.requests] == ["Bearer old", "Bearer new"]


async def test_connection_errors_contain_no_secret(metrics: Metrics) -> None:
    async with Api(refuse(407)) as rejecting:
        unreachable = plain_config(free_port(), b"our-token")
        through_missing_proxy = replace(unreachable, proxy=f"http://me:our-password@127.0.0.1:{free_port()}")
        tls = CredentialCache(StaticCredentials("test", time.time), TLSConfig("test"), time.time)
        tunnel = f"http://me:our-password@127.0.0.1:{rejecting.port}"
        through_rejecting_proxy = replace(unreachable, server="https://localhost", credential_cache=tls, proxy=tunnel)
        for config in unreachable, through_missing_proxy, through_rejecting_proxy:
            async with Http(config, "test", metrics) as http:
                with pytest.raises(errors.Unreachable, match="GET /api/v1/namespaces/default/configmaps/a") as raised:
                    await Client(http, "test").get(CONFIG_MAP, KEY)
            assert "our-" not in "".join(traceback.format_exception(raised.value))
    assert requests(metrics, "<error>") == 3


async def test_a_list_has_all_pages(metrics: Metrics) -> None:
    api = Api(listing(9, config_map("a"), proceed="more"), listing(9, config_map("b")))
    async with connected(api, metrics) as client:
        pages = [page async for page in client.list(CONFIG_MAP, "default", labels="app=x", fields="metadata.name=a")]
    assert [len(page.items) for page in pages] == [1, 1]
    assert [page.resource_version for page in pages] == ["9", "9"]
    both = {"limit": "500", "labelSelector": "app=x", "fieldSelector": "metadata.name=a"}
    assert [seen.query for seen in api.requests] == [both, {**both, "continue": "more"}]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (refuse(410, "Expired", "the continue token is too old"), errors.Gone),
        (cut(b'{"metadata":{"resourceVersion":"9"},"items":['), errors.Unreachable),
        (reply(HTML), errors.ServerError),
        (reply({"items": []}), errors.ServerError),
    ],
)
async def test_an_incomplete_list_is_an_error(
    metrics: Metrics, second: Responder, expected: type[errors.KubeError]
) -> None:
    async with connected(Api(listing(9, config_map("a"), proceed="more"), second), metrics) as client:
        with pytest.raises(expected):
            _ = [page async for page in client.list(CONFIG_MAP, "default")]


async def test_events_are_split_at_newlines(metrics: Metrics) -> None:
    lines = [event("ADDED", config_map(name)) for name in "abc"]
    api = Api(watch(lines[0][:20], lines[0][20:] + lines[1] + lines[2][:-1], b"\n", ending="end"))
    async with connected(api, metrics) as client:
        events = await watched(client)
    assert [Unstructured.decode(seen.object).key.name for seen in events] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("responder", "expected", "message"),
    [
        (watch(b"garbage\n"), errors.ServerError, "not a valid Kubernetes response"),
        (watch(b'{"type":"ADDED"}\n'), errors.ServerError, "not a valid Kubernetes response"),
        (watch(HTML), errors.ServerError, "not a valid Kubernetes response"),
        (watch(event("ERROR", status(410, "Expired", "too old"))), errors.Gone, "too old"),
        (watch(event("ERROR", status(500, "InternalError", "oh"))), errors.ServerError, "oh"),
        (watch(event("ERROR", status(429, after=3))), errors.Throttled, "HTTP 429"),
        (watch(event("ERROR", "what")), errors.ServerError, "not a Kubernetes Status"),
        (watch(event("ERROR", status(410, "Expired", "too old") | {"metadata": None})), errors.Gone, "too old"),
        (
            watch(event("ERROR", status(410, "Expired", "too old") | {"metadata": {"resourceVersion": 7}})),
            errors.Gone,
            "too old",
        ),
        (watch(event("ADDED", config_map("a"))[:30], ending="cut"), errors.StreamInterrupted, "GET /api"),
        (watch(event("ADDED", config_map("a"))[:30], ending="end"), errors.Unreachable, "middle of an event"),
        (watch(ending="hang"), errors.StreamIdle, "GET /api/v1/namespaces/default/configmaps: no data for 0.2 s"),
        (silent, errors.Unreachable, "no response within 0.2 s"),
        (refuse(410, "Expired", "too old"), errors.Gone, "too old"),
        (refuse(429, after=3), errors.Throttled, "HTTP 429"),
    ],
)
async def test_each_end_of_a_watch_has_its_error(
    metrics: Metrics, responder: Responder, expected: type[errors.KubeError], message: str
) -> None:
    api = Api(responder)
    async with connected(api, metrics) as client:
        with pytest.raises(errors.KubeError) as raised:
            await watched(client, idle_timeout=0.2)
        assert type(raised.value) is expected
        assert message in str(raised.value)
        assert len(api.requests) == 1
        if expected is errors.StreamIdle:
            assert requests(metrics, "<error>") == 0


async def test_a_failed_watch_closes_its_connection(metrics: Metrics) -> None:
    api = Api(watch(event("ADDED", config_map("a")), b"garbage\n"))
    async with connected(api, metrics) as client:
        with pytest.raises(
            errors.ServerError
        ) as _held:  # keeps the frames alive, so that garbage collection closes nothing
            await watched(client)
        await eventually(lambda: api.connections == 0, timeout=2)
