import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

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
