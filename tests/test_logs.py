import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from coder_k8s import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("coder_k8s")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    factory = logging.getLogRecordFactory()
    ours.setLevel(logging.NOTSET)  # the test session records all logs and searches them for secrets
    yield io.StringIO()
    logging.setLogRecordFactory(factory)
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_json_lines(stream: io.StringIO) -> None:
    logs.configure("json", "info", stream)
    log = logging.getLogger("coder_k8s.kube.test")
    log.debug("below the level")
    log.info("took %d", 3, extra={"namespace": "ns", "object": "thing", "path": Path("/x")})
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "level": "info",
        "logger": "coder_k8s.kube.test",
        "msg": "took 3",
        "namespace": "ns",
        "object": "thing",
        "path": "/x",
    }


def test_arguments(stream: io.StringIO) -> None:
    logs.configure("json", "info", stream)
    log = logging.getLogger("other.library")
    log.info("100 %")
    log.info("%(name)s is %(state)s", {"name": "one", "state": "ready"})
    log.info("%s", {})
    log.info(ValueError("no text"))
    lines = [json.loads(line)["msg"] for line in stream.getvalue().splitlines()]
    assert lines == ["100 %", "one is ready", "{}", "no text"]


def test_a_line_that_cannot_be_formatted_does_not_stop_the_process(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("json", "info", stream)
    log = logging.getLogger("test")
    log.info("%d is not a number", "one")
    log.info("next")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["next"]
    assert "--- Logging error ---" in capsys.readouterr().err


def test_lines_of_several_threads_do_not_mix(stream: io.StringIO) -> None:
    logs.configure("json", "info", stream)
    log = logging.getLogger("test")

    def write(name: str) -> None:
        for number in range(200):
            log.info("%s %d", name * 50, number)

    threads = [Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line)["msg"] for line in stream.getvalue().splitlines()]
    assert sorted(lines) == sorted(f"{name * 50} {number}" for name in "abcd" for number in range(200))


def test_a_traceback_is_part_of_its_line(stream: io.StringIO) -> None:
    logs.configure("json", "info", stream)
    logging.getLogger("test").error("failed", exc_info=ZeroDivisionError("nothing to share"))
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert "ZeroDivisionError: nothing to share" in line["stack"]


def test_console_lines(stream: io.StringIO) -> None:
    logs.configure("console", "debug", stream)
    logging.getLogger("coder_k8s.kube.test").debug("seen", extra={"namespace": "ns", "object": "thing"})
    assert re.fullmatch(r"\S+Z DEBUG   kube\.test: seen namespace=ns object=thing\n", stream.getvalue())


def test_a_console_line_cannot_be_forged(stream: io.StringIO) -> None:
    logs.configure("console", "info", stream)
    extra = {"reason": "a\rb"}
    logging.getLogger("coder_k8s.kube.test").info("quoted: %s", "x\n2026 INFO forged \x1b[2J", extra=extra)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("quoted: x 2026 INFO forged  [2J reason=a b")
