"""Collects the log as the operator writes it."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coder_k8s.logs import JsonFormatter


@contextmanager
def log_lines(level: int = logging.INFO) -> Iterator[list[dict[str, Any]]]:
    """The list has the lines of the log, parsed, when the block ends."""
    stream, ours = io.StringIO(), logging.getLogger("coder_k8s")
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    handler.setFormatter(JsonFormatter())
    lines: list[dict[str, Any]] = []
    ours.addHandler(handler)
    try:
        yield lines
    finally:
        ours.removeHandler(handler)
        lines += map(json.loads, stream.getvalue().splitlines())
