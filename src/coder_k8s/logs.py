"""Structured logs on stderr: one record per line, as JSON or as text."""

import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from coder_k8s.kube import log_context

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def configure(style: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Write the log of the process to one stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line has these values, and half of the cost of a record is to find them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as the logging HOWTO documents


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON: `ts`, `level`, `logger`, `msg`, then the object of the reconcile and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return _ENCODER.encode(line).decode()


class ConsoleFormatter(logging.Formatter):
    """Formats a record as text: time, level, logger, message, then its extra fields as `key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        logger = record.name.removeprefix("coder_k8s.")
        text = _printable(f"{record.getMessage()}{extra}")
        line = f"{_timestamp(record)} {record.levelname:<7} {logger}: {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _printable(text: str) -> str:
    """Return the text as one line: a message may quote a server, which must not forge lines or control a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def _timestamp(record: logging.LogRecord) -> str:
    seconds = int(record.created)
    return f"{_date_and_time(seconds)}.{int((record.created - seconds) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _date_and_time(seconds: int) -> str:
    """Return the time as text; most records are of the same second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return log_context.fields() | own
