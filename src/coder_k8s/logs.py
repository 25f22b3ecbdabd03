"""Structured logs: one line per event on stderr, as JSON or for humans."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(style: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Send the log of the whole process to one stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """`ts`, `level`, `logger`, `msg`, then whatever the event is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_about(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class ConsoleFormatter(logging.Formatter):
    """Time, level, logger, message and `key=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        about = "".join(f" {name}={value}" for name, value in _about(record).items())
        logger = record.name.removeprefix("coder_k8s.")
        line = f"{_moment(record)} {record.levelname:<7} {logger}: {record.getMessage()}{about}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _about(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}
