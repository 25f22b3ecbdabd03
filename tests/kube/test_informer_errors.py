"""The informer survives responses that a real API server rarely sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from coder_k8s.kube.cache import Change
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.api import Api, Responder, Seen, config_map, cut, event, listing, refuse, reply, status, watch
from tests.support.informers import informers, record_changes, running

HTML = b"<!doctype html>\n<title>Sign in</title>\n"
GONE = watch(event("ERROR", status(410, "Expired", "too old resource version")))


@asynccontextmanager
async def running_informer(
    api: Api, *namespaces: str, **options: Any
) -> AsyncIterator[tuple[Informer[Unstructured], list[Change[Unstructured]]]]:
    """Run an informer of ConfigMaps; yield it and its changes."""
    async with api, informers(api.config) as make:
        informer = make(CONFIG_MAP, *(namespaces or ("default",)), **options)
        changes = record_changes(informer)
        async with running(informer):
            yield informer, changes


def names(informer: Informer[Unstructured]) -> dict[str, str]:
    return {item.key.name: item.metadata.resource_version for item in informer}


def lists(api: Api) -> list[Seen]:
    return [seen for seen in api.requests if "limit" in seen.query]


def watched_from(api: Api) -> list[str]:
    return [seen.query["resourceVersion"] for seen in api.requests if "watch" in seen.query]


BAD_ANSWERS: dict[str, Responder] = {
    "a sign-in page": reply(HTML),
    "a redirect": reply(b"", 302, {"Location": "/elsewhere"}),
    "no responder": cut(),
    "half a response": cut(b'{"metadata":{"resourceVersion":"5"},"items":['),
    "401": refuse(401, "Unauthorized"),
    "403": refuse(403, "Forbidden"),
    "429": refuse(429, "TooManyRequests", after=0.01),
    "500": refuse(500, "InternalError"),
    "503": refuse(503, "ServiceUnavailable"),
}
BAD_LISTS: dict[str, Responder] = {
    **BAD_ANSWERS,
    "410": refuse(410, "Expired"),
    "an item that is not an object": listing(5, {"no": "metadata"}),
    "an item with invalid UTF-8": reply(b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"\xff"}}]}'),
}
BAD_WATCHES: dict[str, Responder] = {
    **BAD_ANSWERS,
    "an end": watch(ending="end"),
    "a cut": watch(ending="cut"),
    "cut within a line": watch(event("ADDED", config_map("b", 7))[:30], ending="cut"),
    "end within a line": watch(event("ADDED", config_map("b", 7))[:30], ending="end"),
    "garbage": watch(b"garbage\n"),
    "an event without an object": watch(event("ADDED", {"no": "metadata"})),
    "an event with invalid UTF-8": watch(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n'),
    "an error": watch(event("ERROR", status(500, "InternalError", "oh"))),
    "silence": watch(ending="hang"),
}


@pytest.mark.parametrize("error", BAD_WATCHES.values(), ids=BAD_WATCHES)
async def test_a_watch_resumes_after_an_error(error: Responder) -> None:
    beginning = watch(event("ADDED", config_map("a", 6)), ending="end")
    rest = watch(event("ADDED", config_map("b", 7)), event("DELETED", config_map("old", 8)))
    api = Api(listing(5, config_map("old", 3)), beginning, error, error, rest)
    async with running_informer(api, watch_idle_timeout=0.3) as (informer, changes):
        await eventually(lambda: names(informer) == {"a": "6", "b": "7"})
        assert informer.error == ""
    assert [change.key.name for change in changes] == ["old", "a", "b", "old"]
    assert len(lists(api)) == 1
    assert set(watched_from(api)[1:]) == {"6"}


@pytest.mark.parametrize("error", BAD_LISTS.values(), ids=BAD_LISTS)
async def test_a_list_is_retried_until_it_is_complete(error: Responder) -> None:
    first_page = listing(5, config_map("a", 3), proceed="more")
    api = Api(error, first_page, error, first_page, listing(5, config_map("b", 4)), watch())
    async with running_informer(api) as (informer, changes):
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert names(informer) == {"a": "3", "b": "4"}
        assert informer.error == ""
    assert [(change.key.name, change.from_list) for change in changes] == [("a", True), ("b", True)]


GONES = pytest.mark.parametrize("gone", [GONE, refuse(410, "Expired", "too old")], ids=["event", "response"])


@GONES
async def test_a_relist_after_gone_notifies_only_changes(gone: Responder) -> None:
    before = listing(5, config_map("same", 1), config_map("changed", 2), config_map("deleted", 3))
    after = listing(9, config_map("same", 1), config_map("changed", 8), config_map("new", 7))
    async with running_informer(Api(before, gone, after, watch())) as (informer, changes):
        await eventually(lambda: informer.last_sync_version("default") == "9")
        assert names(informer) == {"same": "1", "changed": "8", "new": "7"}
    assert sorted((change.key.name, change.new is not None) for change in changes[3:]) == [
        ("changed", True),
        ("deleted", False),
        ("new", True),
    ]


@pytest.mark.parametrize("before", [[], [listing(5, config_map("a", 3)), GONE]], ids=["the first", "after gone"])
async def test_a_list_that_is_older_than_a_write_does_not_undo_it(before: list[Responder]) -> None:
    release = asyncio.Event()

    async def late(request: Any) -> Any:
        await release.wait()
        return await listing(9, config_map("a", 3))(request)

    api = Api(*before, late, watch())
    async with running_informer(api) as (informer, _):
        await eventually(lambda: len(api.requests) == len(before) + 1)
        for manifest in config_map("a", 10), config_map("b", 11):
            informer.record_write(Unstructured.decode(msgspec.json.encode(manifest)), "test")
        release.set()
        await eventually(lambda: informer.last_sync_version("default") == "9")
        assert names(informer) == {"a": "10", "b": "11"}


async def test_a_restored_backup_replaces_newer_objects() -> None:
    api = Api(listing(50, config_map("a", 40), config_map("b", 41)), GONE, listing(9, config_map("a", 4)), watch())
    async with running_informer(api) as (informer, _):
        await eventually(lambda: informer.last_sync_version("default") == "9")
        assert names(informer) == {"a": "4"}


async def test_a_removed_kind_clears_the_cache() -> None:
    api = Api(listing(5, config_map("a", 3)), GONE, refuse(404, "NotFound"))
    async with running_informer(api) as (informer, changes):
        await eventually(lambda: informer.synced.is_set() and not names(informer))
    assert [(change.key, change.new is None) for change in changes] == [
        (Key("default", "a"), False),
        (Key("default", "a"), True),
    ]


@pytest.mark.parametrize(("after", "watch_idle_timeout", "wait_ms"), [(0.3, 5.0, 300), (3600, 0.3, 300)])
async def test_a_throttled_watch_retries_after_the_delay_up_to_the_idle_timeout(
    after: float, watch_idle_timeout: float, wait_ms: int
) -> None:
    api = Api(listing(5), refuse(429, after=after), watch(event("ADDED", config_map("a", 6))))
    async with running_informer(api, watch_idle_timeout=watch_idle_timeout) as (informer, _):
        await eventually(lambda: names(informer) == {"a": "6"}, timeout=3)
    _, refused, again = api.requests[:3]
    assert again.at_ms - refused.at_ms >= wait_ms


async def test_an_invalid_event_is_not_activity() -> None:
    now = [0.0]
    api = Api(listing(5), watch(event("ADDED", {"no": "metadata"})))
    async with running_informer(api, clock=lambda: now[0]) as (informer, _):
        await informer.synced.wait()
        now[0] = 100.0
        await eventually(lambda: len(watched_from(api)) > 2)
        assert informer.idle_seconds() == 100.0


@pytest.mark.parametrize(("idle_seconds", "error"), [(139.0, ""), (140.0, "no data for 0.3 s")])
async def test_an_idle_watch_is_an_error_if_its_restart_is_idle_too(
    idle_seconds: float, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a quiet cluster the first bookmark may come after two minutes."""
    now = [0.0]
    scale = 0.3 / 70.0
    api = Api(listing(5), watch(ending="hang"))
    async with running_informer(api, clock=lambda: now[0], watch_idle_timeout=0.3) as (informer, _):
        await informer.synced.wait()
        now[0] = idle_seconds * scale
        await eventually(lambda: len(watched_from(api)) > 2)
        assert informer.error.endswith(error)
        assert bool(error) == bool(informer.error) == any(record.levelname == "WARNING" for record in caplog.records)
        assert informer.idle_seconds() == now[0]
    assert set(watched_from(api)) == {"5"}


def slow(seconds: float, responder: Responder) -> Responder:
    async def later(request: Any) -> Any:
        await asyncio.sleep(seconds)
        return await responder(request)

    return later


@pytest.mark.parametrize(
    ("responder", "min_watch_lifetime", "alive"),
    [
        (watch(ending="cut", after=0.2), 0.1, True),
        (watch(ending="cut"), 10.0, False),
        (slow(2.0, watch(ending="cut")), 2.0, False),
        (watch(ending="hang"), 0.1, False),
    ],
    ids=["after the minimum lifetime", "at once", "at once after the headers", "never"],
)
async def test_an_interrupted_watch_without_events_was_active_after_the_minimum_lifetime(
    responder: Responder, min_watch_lifetime: float, alive: bool
) -> None:
    now = [0.0]
    api = Api(listing(5), responder)
    async with running_informer(
        api, clock=lambda: now[0], watch_idle_timeout=5.0, min_watch_lifetime=min_watch_lifetime
    ) as (
        informer,
        _,
    ):
        await informer.synced.wait()
        now[0] = 100.0
        await eventually(lambda: len(watched_from(api)) > 1)
        assert informer.idle_seconds() == (0.0 if alive else 100.0)


async def test_the_error_of_one_namespace_is_reported() -> None:
    async def responder(request: Any) -> Any:
        if "/namespaces/closed/" in request.path:
            return await refuse(403, "Forbidden", "no permission")(request)
        if "watch" in request.query:
            return await watch(event("ADDED", config_map("a", 6)))(request)
        return await listing(5)(request)

    api = Api(responder)
    async with running_informer(api, "default", "closed") as (informer, _):
        await eventually(lambda: names(informer) == {"a": "6"} and informer.error == "no permission")
        assert not informer.synced.is_set()
