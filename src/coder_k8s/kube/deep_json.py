"""Objects that are nested deeper than a decoder can follow.

An API server stores almost anything as `managedFields`, to a depth of thousands, and shows it to everyone who lists the
kind. Who may write any Secret must not stop an operator that watches all of them. No field that anybody reads lies that
deep, so what does is left out, but only when it has to be: to look for it takes longer than to decode.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")

DEEPEST = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: Callable[[bytes], T], data: bytes | msgspec.Raw) -> T:
    """What a decoder makes of JSON, however deep that is."""
    try:
        return decoder(data)
    except RecursionError:
        return decoder(prune(bytes(data)))


def prune(data: bytes) -> bytes:
    """The same JSON with `null` for what is too deep."""
    kept, start, depth = bytearray(), 0, 0
    for token in _TOKEN.finditer(data):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST:
                    kept += data[start : token.start()] + b"null"
            case b"}" | b"]":
                if depth == DEEPEST:
                    start = token.end()
                depth -= 1
    return bytes(kept + data[start:])
