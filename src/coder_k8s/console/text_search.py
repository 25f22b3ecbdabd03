"""Finds which of many texts occur in a long one, without a pass over the long text for each of them."""

import sys
from collections.abc import Iterable, Iterator
from typing import Literal

BLOCKS: tuple[tuple[int, Literal["Q", "I"]], ...] = ((8, "Q"), (4, "I"))
"""Sizes of a block in bytes, with the format of an integer of this size."""


def occurring(texts: Iterable[str], corpus: str) -> Iterator[str]:
    """Yield the texts that occur in the corpus.

    The corpus is read in blocks of a fixed size. A text of at least 2 * size - 1 bytes that occurs in it includes a
    complete block, which starts at one of the first bytes of the text. Only texts with such a block are searched for;
    shorter ones always are.
    """
    encoded = {text: text.encode(errors="surrogatepass") for text in texts}
    content = corpus.encode(errors="surrogatepass")
    longest = len(content) + 1
    for size, integer in BLOCKS:
        long = [text for text in encoded if 2 * size - 1 <= len(encoded[text]) < longest]
        blocks = {text: list(_blocks(encoded[text], size)) for text in long}
        aligned = memoryview(content[: len(content) // size * size]).cast(integer)
        found = {block for of in blocks.values() for block in of}.intersection(aligned) if blocks else set()
        yield from (text for text, of in blocks.items() if not found.isdisjoint(of) and text in corpus)
        longest = min(longest, 2 * size - 1)
    yield from (text for text in encoded if len(encoded[text]) < longest and text in corpus)


def _blocks(text: bytes, size: int) -> Iterator[int]:
    """Yield the block at each of the first offsets, as the integer that it is in a memoryview."""
    for offset in range(size):
        yield int.from_bytes(text[offset : offset + size], sys.byteorder)
