"""Reads a tar archive that is not trusted, with little memory.

`tarfile` reads extension headers completely, whatever their size is, keeps all entries, and follows maps of sparse
files. This reader does none of that:

| the archive has | |
|---|---|
| an extension header of more than 8 KiB | is rejected |
| a global header | has no effect |
| a long name in a header of PAX or GNU | is the name of the next entry |
| a sparse file, or an entry with a negative size | is rejected |
"""

import tarfile
from collections.abc import Iterator
from typing import Protocol

import msgspec

from .archive import InvalidFiles

MAX_HEADER = 8 * 1024
BLOCK = tarfile.BLOCKSIZE
CHUNK = 64 * 1024
PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
EXTENSIONS = (*PAX, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
SPARSE = "GNU.sparse."


class Stream(Protocol):
    """Bytes that can only be read once."""

    def read(self, size: int, /) -> bytes: ...


class Entry(msgspec.Struct, frozen=True):
    """A file, a directory or another entry; `content` reads at most its size, before the next entry."""

    name: str
    kind: bytes
    content: "Content"

    @property
    def is_directory(self) -> bool:
        return self.kind == tarfile.DIRTYPE

    @property
    def is_file(self) -> bool:
        return self.kind in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


class Content:
    """The content of an entry, and the rest of its last block."""

    def __init__(self, source: Stream, size: int) -> None:
        self._source = source
        self._left = size + -size % BLOCK
        self.size = size

    def read(self) -> bytes:
        data = _exactly(self._source, self.size)
        self._left -= len(data)
        return data

    def skip(self) -> None:
        while self._left:
            self._left -= len(_exactly(self._source, min(self._left, CHUNK)))


def entries(source: Stream) -> Iterator[Entry]:
    """Yield the entries of an archive; raise `InvalidFiles`, or `TarError` if it is not a complete archive."""
    extended: dict[str, str] = {}
    first = True
    while (block := source.read(BLOCK)) or first:
        first = False
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            return
        size = int(extended.get("size", header.size)) if header.type not in EXTENSIONS else header.size
        if size < 0 or header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(SPARSE) for key in extended):
            raise InvalidFiles("The artifact has an entry that is sparse or has an invalid size; it is not used")
        content = Content(source, 0 if header.type == tarfile.DIRTYPE else size)
        if header.type in EXTENSIONS:
            extended |= _extension(header, content)
        else:
            yield Entry(extended.get("path", header.name).rstrip("/"), header.type, content)
            extended = {}
        content.skip()


def _extension(header: tarfile.TarInfo, content: Content) -> dict[str, str]:
    """What an extension header sets for the next entry."""
    if content.size > MAX_HEADER:
        raise InvalidFiles(f"The artifact has a header of more than {MAX_HEADER // 1024} KiB; it is not used")
    if header.type in PAX:
        return _records(content.read())
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": content.read().partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    return {}


def _records(data: bytes) -> dict[str, str]:
    """The records of a PAX header, each of which is its length, a space, `key=value` and a line break."""
    found = {}
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        end = int(length)
        if not len(length) < end <= len(data):
            raise tarfile.ReadError("invalid record")
        key, _, value = data[len(length) + 1 : end - 1].decode("utf-8", "surrogateescape").partition("=")
        found[key] = value
        data = data[end:]
    return found


def _exactly(source: Stream, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise tarfile.ReadError("unexpected end of data")
    return data
