"""The limits of logs in a report, on an API server with scripted responses."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.console.container_logs import BYTES, Logs, Source, from_complete_line, sources
from coder_k8s.console.scrubbing import Scrubber
from coder_k8s.console.session import Session
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Manifest
from tests.console.manifests import pod
from tests.support.api import Api, Responder

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def kubelet(log: bytes) -> Responder:
    """Return a handler that serves the end of a log as a kubelet does: the last lines, then limited in bytes."""

    async def handle(request: web.Request) -> web.Response:
        tail = b"".join(log.splitlines(keepends=True)[-int(request.query["tailLines"]) :])
        return web.Response(body=tail[: int(request.query["limitBytes"])])

    return handle


async def read(
    log: bytes | Responder, pods: list[Manifest], **limits: Any
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the logs, the problems, and the numbers of lines that were requested."""
    problems: list[str] = []
    responder = kubelet(log) if isinstance(log, bytes) else log
    async with Api(responder) as server, Http(server.config, "test", Metrics()) as http:
        session = Session(http, Client(http, "test"), "", "coder")
        found = await Logs(session, problems, **limits).read(pods)
    return found, problems, [request.query["tailLines"] for request in server.requests]


async def test_a_short_log_is_complete() -> None:
    found, problems, requested = await read(b"one\ntwo\n", [pod("a", READY, {})])
    assert (found, problems, requested) == ({"a/coder.log": "one\ntwo\n"}, [], ["10000"])


async def test_only_the_last_lines_are_read() -> None:
    found, problems, _ = await read(b"".join(b"%d\n" % number for number in range(30_000)), [pod("a", READY, {})])
    lines = found["a/coder.log"].splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("20001", "29999", 9_999)  # the first one may be incomplete
    assert problems == []


async def test_fewer_lines_if_they_are_long() -> None:
    log = b"".join(b"%d %s\n" % (number, b"x" * 5_000) for number in range(1_000))
    found, problems, requested = await read(log, [pod("a", READY, {})])
    lines = found["a/coder.log"].splitlines()
    assert lines[-1].startswith("999 ")
    assert lines[0].startswith("901 ")
    assert len(found["a/coder.log"]) <= BYTES
    assert (problems, requested) == ([], ["10000", "1000", "100"])


async def test_incomplete_lines_at_both_ends_of_a_cut_log_are_dropped() -> None:
    found, problems, _ = await read(b"half a line\nx\n" + b"y" * 2 * BYTES, [pod("a", READY, {})])
    assert found == {"a/coder.log": "x\n"}
    assert problems == ["Skipped (size limit of a log): the end of the log of container coder of pod coder/a"]


@pytest.mark.slow
async def test_no_part_of_a_secret_is_left_at_a_cut() -> None:
    secret = "hunter2-hunter2-x9"
    for offset in range(len(secret) + 1):
        log = b"x" * offset + b"\n" + (f"{secret} " * 800 + "\n").encode() * 100
        found, _, _ = await read(log, [pod("a", READY, {})])
        text = found["a/coder.log"]
        redacted = Scrubber([secret], (), text).text(text)
        assert "<redacted>" in redacted
        assert not [size for size in range(3, len(secret)) if secret[:size] in redacted or secret[-size:] in redacted]


async def test_the_limit_of_a_report_and_which_pods_come_first() -> None:
    pods = [pod("good", READY, {}), pod("bad", {}, {})]
    found, problems, _ = await read(b"one\ntwo\n", pods, limit=8)
    assert list(found) == ["bad/coder.log"]
    assert problems[-1] == "Skipped (size limit of the report): log of container coder of pod coder/good"


async def test_a_kubelet_that_does_not_respond_costs_one_log() -> None:
    async def slow(request: web.Request) -> web.Response:
        if "/a/" in request.path:
            await asyncio.Event().wait()
        return web.Response(body=b"one\n")

    found, problems, _ = await read(slow, [pod("a", READY, {}), pod("b", READY, {})], seconds=1)
    assert found == {"b/coder.log": "one\n"}
    assert problems == ["Skipped (no complete response within 1 s): log of container coder of pod coder/a"]


@pytest.mark.parametrize(("seconds", "total_seconds"), [(60, 1), (0.95, 1)])
async def test_the_time_limit_of_a_report(seconds: float, total_seconds: float) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    pods = [pod(name, READY, {}) for name in "abcd"]
    found, problems, requested = await read(slow, pods, seconds=seconds, total_seconds=total_seconds)
    assert (found, len(requested)) == ({}, 1)
    assert problems[1:] == [
        f"Skipped (time limit of the report): log of container coder of pod coder/{name}" for name in "bcd"
    ]


@pytest.mark.parametrize(
    ("log", "lines", "left"),
    [
        (b"one\ntwo\n", 3, b"one\ntwo\n"),
        (b"one\ntwo\n", 2, b"two\n"),
        (b"one\n" + b"x" * 16384 + b"\n", 3, b"x" * 16384 + b"\n"),  # the long line is two records of a runtime
        (b"one", 1, b"one"),
        (b"", 1, b""),
    ],
)
def test_the_first_line_may_be_incomplete(log: bytes, lines: int, left: bytes) -> None:
    assert from_complete_line(log, lines) == left


def test_the_containers_of_a_pod() -> None:
    manifest = pod("a", {"containerStatuses": [{"name": "coder", "restartCount": 2}]}, {})
    manifest["spec"]["initContainers"] = [{"name": "init"}]
    assert [source.file for source in sources(manifest)] == ["a/init.log", "a/coder.log", "a/coder.previous.log"]
    assert str(Source(manifest, "coder", previous=True)) == "log of previous container coder of pod coder/a"
