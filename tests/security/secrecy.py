"""Checks at the end of every run that no secret value appears outside of Secrets.

Secret are all values that were written into Secrets during the run, from the audit logs of the API servers; of a URL,
only the password. A value is detected by its words, which are sequences of letters, digits, `-` and `_` of 16 or more
characters, and by those of its base64 form. Shorter words are ambiguous, and a UUID is a name.

The check searches everything that the operator wrote to an API server (status, conditions, events, children, URLs; of
Secrets, everything except their data), the logs and metrics of operator processes, and the log records of controllers
in tests. All of them log at debug level, except the operator of the documentation tests.
"""

import base64
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from coder_k8s.logs import JsonFormatter

from .audit import entries, is_operator, place

SHORTEST = 16
WORD = re.compile(rb"\\[bfnrt]|[A-Za-z0-9][A-Za-z0-9_-]{%d,}" % (SHORTEST - 1))
"""An escape sequence is not part of the word that follows it."""
UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OPERATOR_LOG = re.compile(rb'\{"ts":|\d{4}-\d\d-\d\dT\S+Z [A-Z]+ ')
"""The start of an operator's log, in both formats."""
LOGGER = "coder_k8s"
RECORDS = ".records"
"""The suffix of the files with the log records of the operator's code in tests."""
SECRET_DATA = ("data", "stringData")


def words(text: bytes) -> set[bytes]:
    """The words of a text, and their parts, that are long enough."""
    whole = set(WORD.findall(text))
    parts = {part for word in whole for part in re.split(b"[-_]", word)}
    return {word for word in whole | parts if len(word) >= SHORTEST and not UUID.fullmatch(word)}


def secret_words(value: bytes) -> set[bytes]:
    """The words of a Secret's value that must not appear."""
    encoded = (base64.b64encode(value), base64.urlsafe_b64encode(value))
    return set().union(*map(words, (*_secret_parts(value), *encoded)))


def _secret_parts(value: bytes) -> tuple[bytes, ...]:
    if b"://" not in value:
        return (value,)
    try:
        password = urlsplit(value.decode()).password or ""
    except ValueError:
        return (value,)
    return (password.encode(), unquote(password).encode())


def values(entry: dict[str, Any]) -> Iterator[bytes]:
    """The values that a request wrote into a Secret, accepted or not."""
    body = entry.get("requestObject")
    if entry.get("objectRef", {}).get("resource") != "secrets" or not isinstance(body, dict):
        return
    yield from (str(value).encode() for value in (body.get("stringData") or {}).values())
    for value in (body.get("data") or {}).values():
        with suppress(ValueError):
            yield base64.b64decode(str(value), validate=True)


def visible_part(entry: dict[str, Any]) -> bytes:
    """The part of a request that is visible without access to Secrets."""
    body = entry.get("requestObject")
    if entry.get("objectRef", {}).get("resource") == "secrets" and isinstance(body, dict):
        body = {name: part for name, part in body.items() if name not in SECRET_DATA}
    return msgspec.json.encode([entry["requestURI"], body])


def findings(audit: Iterable[dict[str, Any]], files: Iterable[Path]) -> list[str]:
    """Where a secret appears, without its value."""
    known = list(audit)
    secrets = set().union(*map(secret_words, {value for entry in known for value in values(entry)}))
    requests = [(visible_part(entry), entry) for entry in known if is_operator(entry)]
    places = [place(requests[number][1]) for number in _seen([text for text, _ in requests], secrets)]
    for file in files:
        lines = file.read_bytes().splitlines()
        where = f"{file.parent.name}/{file.name}"
        places += [f"{where}:{number + 1}: {_test(lines[number])}" for number in _seen(lines, secrets)]
    return places


def _seen(texts: list[bytes], secrets: set[bytes]) -> list[int]:
    """The indexes of the texts that contain a secret. Usually none does, and one check of all texts is cheap."""
    if not words(b"\n".join(texts)) & secrets:
        return []
    return [number for number, text in enumerate(texts) if words(text) & secrets]


def _test(line: bytes) -> str:
    """The test of a log record, which is the start of its line."""
    return line.partition(b" {")[0].decode() if line.startswith(b"tests/") else ""


class Records(logging.FileHandler):
    """Writes all log records of the operator's code in tests, with the test but without its parameters."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)
        self.setFormatter(JsonFormatter())

    def format(self, record: logging.LogRecord) -> str:
        test, *_ = re.split(r"[\[ ]", os.environ.get("PYTEST_CURRENT_TEST", "tests/"))
        return f"{test} {super().format(record)}"


def record(config: pytest.Config, path: Path) -> None:
    """Write log records of every level to this file until the run ends."""
    handler, logger = Records(path), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    config.add_cleanup(handler.close)


def logs(folder: Path) -> Iterator[Path]:
    """The logs and metrics of operator processes."""
    for path in folder.rglob("*"):
        if path.suffix == ".metrics" or (path.suffix == ".log" and _is_operator_log(path)):
            yield path


def _is_operator_log(path: Path) -> bool:
    with path.open("rb") as file:
        return OPERATOR_LOG.match(file.read(64)) is not None


class Secrecy:
    """Fails a run in which a secret appears outside of Secrets."""

    def __init__(self, audit: Path, records: Path) -> None:
        self._audit = audit
        self._records = records
        self._findings: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        scratch: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        files = [*self._records.glob(f"*{RECORDS}"), *logs(scratch.getbasetemp())]
        self._findings = findings(entries(self._audit), files)
        if self._findings:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._findings:
            terminalreporter.section("secrets outside of Secrets, see tests/security/secrecy.py", red=True)
            terminalreporter.write_line("\n".join(self._findings))
