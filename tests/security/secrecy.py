"""Whether a secret of a run was seen where none belongs: told at the end of every run, be it of one test or of all.

What is secret: every value that anybody wrote into a Secret during the run, by the audit logs of its API servers. Of a
URL only the password is. A value is known by its words, which are runs of letters, digits, `-` and `_` of 16 characters
or more, and by those of its base64 form. Shorter ones could be anybody's, and a UUID is a name.

Where it is looked for: in all that the operator wrote to an API server (status, conditions, events, children, URLs; of
Secrets, everything but their data), in the logs of operators that ran as processes and in their metrics, and in the log
records of controllers that ran inside of tests. They log at debug level, but for the operator of the documentation.
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

from .audit import entries, is_operators, place

SHORTEST = 16
WORD = re.compile(rb"\\[bfnrt]|[A-Za-z0-9][A-Za-z0-9_-]{%d,}" % (SHORTEST - 1))
"""An escaped character is none of the word that it stands before."""
UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OURS = re.compile(rb'\{"ts":|\d{4}-\d\d-\d\dT\S+Z [A-Z]+ ')
"""How the log of an operator begins, in either format."""
LOGGER = "coder_k8s"
RECORDS = ".records"
"""How the names of files end in which workers write down what the operator's code logs in them."""
SECRET_DATA = ("data", "stringData")


def words(text: bytes) -> set[bytes]:
    """By what a text can be known: its words, and their parts that are long enough."""
    whole = set(WORD.findall(text))
    parts = {part for word in whole for part in re.split(b"[-_]", word)}
    return {word for word in whole | parts if len(word) >= SHORTEST and not UUID.fullmatch(word)}


def given_away_by(value: bytes) -> set[bytes]:
    """The words of which none may be seen, for the value of a Secret."""
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
    """What a request wrote into a Secret, whether it was accepted or not."""
    body = entry.get("requestObject")
    if entry.get("objectRef", {}).get("resource") != "secrets" or not isinstance(body, dict):
        return
    yield from (str(value).encode() for value in (body.get("stringData") or {}).values())
    for value in (body.get("data") or {}).values():
        with suppress(ValueError):
            yield base64.b64decode(str(value), validate=True)


def shown(entry: dict[str, Any]) -> bytes:
    """What a request of the operator shows to others than readers of Secrets."""
    body = entry.get("requestObject")
    if entry.get("objectRef", {}).get("resource") == "secrets" and isinstance(body, dict):
        body = {name: part for name, part in body.items() if name not in SECRET_DATA}
    return msgspec.json.encode([entry["requestURI"], body])


def findings(audit: Iterable[dict[str, Any]], files: Iterable[Path]) -> list[str]:
    """Where a secret was seen, without a word of it."""
    known = list(audit)
    secrets = set().union(*map(given_away_by, {value for entry in known for value in values(entry)}))
    requests = [(shown(entry), entry) for entry in known if is_operators(entry)]
    places = [place(requests[number][1]) for number in _seen([text for text, _ in requests], secrets)]
    for file in files:
        lines = file.read_bytes().splitlines()
        where = f"{file.parent.name}/{file.name}"
        places += [f"{where}:{number + 1}: {_test(lines[number])}" for number in _seen(lines, secrets)]
    return places


def _seen(texts: list[bytes], secrets: set[bytes]) -> list[int]:
    """Which of the texts show a secret. Almost never one does, and to look at all of them at once is much cheaper."""
    if not words(b"\n".join(texts)) & secrets:
        return []
    return [number for number, text in enumerate(texts) if words(text) & secrets]


def _test(line: bytes) -> str:
    """The test that a record belongs to, by which its line begins."""
    return line.partition(b" {")[0].decode() if line.startswith(b"tests/") else ""


class Records(logging.FileHandler):
    """Writes down all that the operator's code logs within tests, each line with its test; parameters may be secret."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)
        self.setFormatter(JsonFormatter())

    def format(self, record: logging.LogRecord) -> str:
        test, *_ = re.split(r"[\[ ]", os.environ.get("PYTEST_CURRENT_TEST", "tests/"))
        return f"{test} {super().format(record)}"


def record(config: pytest.Config, path: Path) -> None:
    """Write records there, at every level, until the run ends."""
    handler, logger = Records(path), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    config.add_cleanup(handler.close)


def logs(folder: Path) -> Iterator[Path]:
    """The logs and metrics of operators that ran as processes of their own."""
    for path in folder.rglob("*"):
        if path.suffix == ".metrics" or (path.suffix == ".log" and _is_ours(path)):
            yield path


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return OURS.match(file.read(64)) is not None


class Secrecy:
    """Fails a run in which a secret was seen where none belongs."""

    def __init__(self, audit: Path, records: Path) -> None:
        self._audit = audit
        self._records = records
        self._told: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        scratch: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        files = [*self._records.glob(f"*{RECORDS}"), *logs(scratch.getbasetemp())]
        self._told = findings(entries(self._audit), files)
        if self._told:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._told:
            terminalreporter.section("where a secret was seen, see tests/security/secrecy.py", red=True)
            terminalreporter.write_line("\n".join(self._told))
