"""Flux artifacts: whether they may be fetched, whether they are complete, and the files in them.

A URL in a status decides what the operator fetches, so only Services of the cluster are allowed. The content of an
artifact is not trusted either: nothing is written to disk, and an archive that expands too much is rejected.

| the artifact | |
|---|---|
| has a URL that is not http or https, has credentials, or has a host that is not a Service | is rejected |
| is at a Service that does not exist, or that is an alias of an external host (`flux.py`) | is rejected |
| has a digest that does not match, or of an unknown algorithm | is rejected |
| is not a compressed tar archive | is rejected |
| expands to more than 100 MiB, has more than 20,000 entries, or has large headers | is rejected |
| has an entry with an absolute path or `..` | is rejected |
| has a link or a device in the path of the template | is rejected |
| has no files in the path of the template | is rejected |
"""

import hashlib
import hmac
import io
import re
import zlib
from collections.abc import Iterator

from coder_k8s.http.errors import InvalidURL
from coder_k8s.http.urls import parse_url
from coder_k8s.kube.objects import Key

from .archive import MAX_ARCHIVE, InvalidFiles, displayed, is_left_out

MAX_ENTRIES = 20_000
MAX_EXPANDED = 100 * 1024 * 1024
"""Bytes of the uncompressed archive."""
ALGORITHMS = ("sha256", "sha384", "sha512")
LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SERVICE = re.compile(rf"({LABEL})\.({LABEL})\.svc(?:\.cluster\.local)?\.?")


def service_of(url: str) -> Key:
    """Return the Service of a URL; raise `InvalidFiles` if it is not that of a Service in the cluster."""
    try:
        target = parse_url(url)
    except InvalidURL as error:
        raise InvalidFiles(f"The URL of the artifact is not valid: {error}") from None
    host = target.origin.host
    if (service := SERVICE.fullmatch(host)) is None:
        raise InvalidFiles(
            f"The artifact is at host '{displayed(host)}', which is not a Service of this cluster"
            " (*.svc or *.svc.cluster.local); it is not fetched"
        )
    if target.authorization:
        raise InvalidFiles("The URL of the artifact contains credentials; it is not fetched")
    return Key(service.group(2), service.group(1))


def check_digest(data: bytes, digest: str) -> None:
    """Raise `InvalidFiles` unless the data has this digest, such as `sha256:…`."""
    algorithm, _, expected = digest.partition(":")
    if algorithm not in ALGORITHMS:
        raise InvalidFiles(f"The artifact has a digest that is none of {', '.join(ALGORITHMS)}; it is not used")
    if not hmac.compare_digest(hashlib.new(algorithm, data).hexdigest(), expected.lower()):
        raise InvalidFiles("The content of the artifact does not match its digest; it is not used")


def directory(path: str) -> str:
    """Return a path in an artifact without `.` and `/` around it; raise `InvalidFiles` if it leaves the artifact."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidFiles(f"path '{displayed(path)}' contains '..'; use a path inside the artifact")
    return "/".join(parts)


def extract(data: bytes, path: str) -> dict[str, bytes]:
    """Return the files in one directory of an artifact, by their name in it."""
    prefix = directory(path)
    found: dict[str, bytes] = {}
    size = 0
    for name, content in entries(data, f"{prefix}/" if prefix else ""):
        if name in found:
            raise InvalidFiles(f"The artifact has two files '{displayed(name)}'; it is not used")
        found[name] = content
        size += len(content)
        if size > MAX_ARCHIVE:
            limit = f"at most {MAX_ARCHIVE // 1024} KiB are allowed"
            raise InvalidFiles(f"The files of the artifact are too large, {limit}; set path, or remove some files")
    if prefix and not found:
        raise InvalidFiles(f"The artifact has no files in the directory '{displayed(prefix)}'; correct path")
    return found


def entries(data: bytes, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a directory with their content, one at a time."""
    import gzip  # these take 1 MB, and most operators have no templates
    import tarfile

    from . import untar

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as expanded:
            for number, entry in enumerate(untar.entries(_Limited(expanded))):
                if number >= MAX_ENTRIES:
                    raise InvalidFiles(f"The artifact has more than {MAX_ENTRIES} entries; it is not used")
                name = _checked(entry.name)
                if entry.is_directory or not name.startswith(prefix) or is_left_out(name.removeprefix(prefix)):
                    continue
                if not entry.is_file:
                    raise InvalidFiles(
                        f"'{displayed(name)}' in the artifact is a link or a device; replace it by a file"
                    )
                if entry.content.size > MAX_ARCHIVE:
                    raise InvalidFiles(f"File '{displayed(name)}' in the artifact is too large; remove it")
                yield name.removeprefix(prefix), entry.content.read()
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError):
        raise InvalidFiles("The artifact is not a complete tar archive that is compressed with gzip") from None


class _Limited:
    """Reads a stream up to the limit of an uncompressed archive, so that a small artifact cannot use all memory."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source = source
        self._left = MAX_EXPANDED

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise InvalidFiles(f"The artifact expands to more than {MAX_EXPANDED // 1024**2} MiB; it is not used")
        return data


def _checked(name: str) -> str:
    """Return the name of an entry without a leading `./`."""
    if name.startswith("/") or ".." in name.split("/"):
        raise InvalidFiles(f"The artifact has the entry '{displayed(name)}', which is outside of it; it is not used")
    while name.startswith("./"):
        name = name.removeprefix("./")
    return name
