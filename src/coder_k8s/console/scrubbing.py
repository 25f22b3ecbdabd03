"""Redaction of free text: known secrets, and everything that looks like a secret."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from .redaction import REDACTED

SHORTEST = 6
"""Shorter values are not redacted, because they can be part of many words."""
SHORTEST_WORD = 8
"""The same for a part of a structured value, which is more often a common word."""
LONGEST = 65536
"""Longer values are files, which are not searched for."""

PEM = re.compile(r"-----BEGIN[^-]*-----.*?(?:-----END[^-]*-----|\Z)", re.DOTALL)
PEM_END = re.compile(r"\A.*-----END[^-]*-----", re.DOTALL)
"""After `PEM`: the end of a block whose beginning is not in the text."""
# Without the limits, a line of a log with many URLs or keywords and no space would take minutes.
URL_LOGIN = re.compile(r"(?<=://)[^\s\"<>]{0,4096}@")
URL_QUERY = re.compile(r"(?<=[\w?])\?[^\s\"<>=?]+=[^\s\"<>]*")
ASSIGNMENT = re.compile(
    r"((?:password|passwd|pwd|secret|token|credential|api[-_]?key|session)[\w-]{0,64}\\?[\"']?[ \t]*[=:][ \t]*)"
    r"(?!<redacted>)(?:\\?\"(?:\\.|[^\"\\])*\"?|'[^']*'?|(?:\\.|[^\s\"\\])+)",
    re.IGNORECASE,
)
ENTRY = re.compile(r"^[ \t]*[\w.-]+[ \t]*[=:][ \t]*(\S.*)$", re.MULTILINE)
WORD_ENTRY = re.compile(r"(?<!\S)\w+=(\S+)")
GO_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
GO_UNRESERVED = "$&+,/:;=@"
"""What Go leaves as it is in a part of a URL."""
HEADER = re.compile(r"\b(bearer|basic)[ \t]+[\w.~+/=-]{8,}", re.IGNORECASE)
JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?")
SESSION_TOKEN = re.compile(r"\b[A-Za-z0-9]{10}-[A-Za-z0-9]{22}\b")
PROXY_TOKEN = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9A-Za-z]{16,}")
RANDOM = re.compile(r"\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{32,}\b")


class Scrubber:
    """Redacts the secrets that occur in a corpus, except for names of objects."""

    def __init__(self, secrets: Iterable[str], names: Iterable[str], corpus: str) -> None:
        forms = {form for secret in secrets if len(secret) <= LONGEST for form in _forms(secret)} - set(names)
        occurring = (form for form in forms if len(form) >= SHORTEST and form in corpus)
        self._known = sorted(occurring, key=len, reverse=True)

    def known(self, text: str) -> str:
        """Redact known secrets."""
        for form in self._known:
            text = text.replace(form, REDACTED)
        return text

    def text(self, text: str) -> str:
        """Redact known secrets and everything that looks like a secret."""
        text = self.known(text)
        for pattern in (PEM, PEM_END, JWT, SESSION_TOKEN, PROXY_TOKEN, RANDOM):
            text = pattern.sub(REDACTED, text)
        text = URL_LOGIN.sub(f"{REDACTED}@", text)
        text = URL_QUERY.sub(f"?{REDACTED}", text)
        text = HEADER.sub(rf"\1 {REDACTED}", text)
        return ASSIGNMENT.sub(rf"\1{REDACTED}", text)

    def document(self, value: Any) -> Any:
        """Redact all strings of a document."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.known(name): self.document(item) for name, item in value.items()}
            case list():
                return [self.document(item) for item in value]
        return value


def _forms(secret: str) -> Iterator[str]:
    """Yield all forms of a secret: the secret, its parts and lines, also quoted and encoded."""
    yield from filter(None, map(str.strip, secret.splitlines()))
    for part in {secret, secret.strip(), *_parts(secret)}:
        yield part
        yield from _percent_encoded(part)
        yield from _json_encoded(part)
        yield from _encoded(part.encode())


def _percent_encoded(text: str) -> Iterator[str]:
    """Yield the text as in URLs and forms, with upper-case and lower-case digits."""
    for encoded in (quote(text, safe=""), quote(text, safe=GO_UNRESERVED), quote_plus(text)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda escape: escape[0].lower(), encoded)


def _json_encoded(text: str) -> Iterator[str]:
    """Yield the text as in JSON of Python and of Go, also if that is a string of a JSON document again."""
    for encoded in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        for escaped in (encoded, encoded.translate(GO_ESCAPES)):
            yield escaped
            yield json.dumps(escaped, ensure_ascii=False)[1:-1]


def _parts(secret: str) -> Iterator[str]:
    """Yield the parts of a secret: the password of a URL, the values of a DSN, `.env`, YAML or JSON document."""
    for entry in (*ENTRY.findall(secret), *WORD_ENTRY.findall(secret)):
        value = entry.strip().strip("\"'")
        if len(value) >= SHORTEST_WORD:
            yield value
    try:
        password = urlsplit(secret.strip()).password
    except ValueError:
        password = None
    if password:
        yield from (password, unquote(password))
    if secret.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(secret))
        except ValueError:
            return


def _leaves(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list):
        for item in document.values() if isinstance(document, dict) else document:
            yield from _leaves(item)


def _encoded(secret: bytes) -> Iterator[str]:
    """Yield base64 of the secret, and the unaffected characters if it is encoded inside a longer value."""
    if len(secret) < SHORTEST:
        return
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        padded = base64.b64encode(bytes(offset) + secret).decode()
        inner = padded[first : (offset + len(secret)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
