"""The forms in which a secret occurs in text: quoted, encoded, and in parts."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

SHORTEST = 6
"""Shorter values are not redacted, because they can be part of many words."""
SHORTEST_WORD = 8
"""The same for a part of a structured value, which is more often a common word."""
ENTRY = re.compile(r"^[ \t]*[\w.-]+[ \t]*[=:][ \t]*(\S.*)$", re.MULTILINE)
WORD_ENTRY = re.compile(r"(?<!\S)\w+=(\S+)")
GO_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
GO_UNRESERVED = "$&+,/:;=@"
"""What Go leaves as it is in a part of a URL."""


def forms(secret: str) -> Iterator[str]:
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
