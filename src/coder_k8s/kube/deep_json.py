"""Decodes JSON that is nested too deeply for the decoder.

An API server stores `managedFields` with thousands of levels and returns them in every list. A user who can write one
Secret could stop an operator that watches all Secrets. The operator reads no field at that depth, so it drops deeper
levels. This is slower than decoding, so it happens only after the decoder fails.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: Callable[[bytes], T], data: bytes | msgspec.Raw) -> T:
    """Decode JSON of any depth; levels from `MAX_DEPTH` on may be null."""
    try:
        return decoder(data)
    except RecursionError:
        return decoder(prune(bytes(data)))


def prune(data: bytes) -> bytes:
    """Return the JSON with null at depth `MAX_DEPTH`."""
    kept, start, depth = bytearray(), 0, 0
    for token in _TOKEN.finditer(data):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == MAX_DEPTH:
                    kept += data[start : token.start()] + b"null"
            case b"}" | b"]":
                if depth == MAX_DEPTH:
                    start = token.end()
                depth -= 1
    return bytes(kept + data[start:])
