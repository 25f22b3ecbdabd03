"""Collects log lines in the operator's format."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coder_k8s.logs import JsonFormatter


@contextmanager
def log_lines(level: int = logging.INFO) -> Iterator[list[dict[str, Any]]]:
    """Yield a list that holds the parsed log lines after the block ends."""
    stream, logger = io.StringIO(), logging.getLogger("coder_k8s")
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    handler.setFormatter(JsonFormatter())
    lines: list[dict[str, Any]] = []
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        lines += map(json.loads, stream.getvalue().splitlines())
