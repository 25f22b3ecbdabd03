"""Structured logs on stderr: one record per line, as JSON or as text."""

import logging
import sys
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from coder_k8s.kube import log_context

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class Record(logging.LogRecord):
    """What a line contains. A record of the standard library has twenty more attributes, which takes longer to make."""

    # What handlers and formatters of the standard library expect of a record.
    exc_text = stack_info = None
    pathname = filename = module = ""
    lineno = 0

    def __init__(self, name: str, level: int, _path: str, _line: int, msg: object, args: Any, exc_info: Any, *_: Any):
        self.name, self.levelno, self.levelname = name, level, logging.getLevelName(level)
        by_name = args and len(args) == 1 and isinstance(args[0], dict) and args[0]  # for `%(name)s`
        self.msg, self.args, self.exc_info = msg, by_name or args, exc_info
        self.created = time.time()


def configure(style: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Write the log of the process to one stream."""
    handler = Handler(stream)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.setLogRecordFactory(Record)
    logging._srcfile = None  # noqa: SLF001 - no line has the file of the caller; as the logging HOWTO documents


class Handler(logging.StreamHandler[TextIO]):
    """Writes each record as one line."""

    def handle(self, record: logging.LogRecord) -> bool:
        if not self.filter(record):
            return False
        try:
            line = f"{self.format(record)}\n"
            with self.lock:  # type: ignore[union-attr]  # a handler has one
                self.stream.write(line)
                self.stream.flush()
        except Exception:
            self.handleError(record)
        return True


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
