"""Artifacts as Flux stores them."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence


def artifact(files: Mapping[str, bytes], others: Sequence[tarfile.TarInfo] = ()) -> bytes:
    """Return a compressed tar archive with files, and with other entries before them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as target:
        for entry in others:
            target.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1_700_000_000
            target.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def with_entries(number: int) -> bytes:
    """Return an artifact with so many empty files."""
    return gzip.compress(tarfile.TarInfo("other/empty").tobuf(tarfile.USTAR_FORMAT) * number + bytes(10240), 1)


def bomb(size: int) -> bytes:
    """Return a small artifact with a file of zeros of this size."""
    entry = tarfile.TarInfo("zeros.bin")
    entry.size = size
    header = entry.tobuf(tarfile.USTAR_FORMAT)
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", compresslevel=1) as target:
        target.write(header)
        for _ in range(size // 2**20):
            target.write(bytes(2**20))
        target.write(bytes(10240))
    return content.getvalue()


def link(name: str, kind: bytes = tarfile.SYMTYPE, target: str = "/etc/passwd") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
