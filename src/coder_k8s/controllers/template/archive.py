"""The archive of a template: the same files always become the same bytes, which coderd stores once.

| a name that | |
|---|---|
| is empty, is absolute, or has an empty, `.` or `..` part | is rejected |
| has control characters, or characters that are not UTF-8 | is rejected |
| does not fit into a tar archive (255 bytes, 100 of them in the last part) | is rejected |
| is also the name of a directory, or differs from another only in its Unicode form | is rejected |
| is hidden, except `.terraform.lock.hcl` | is left out |
| has `.tfstate` in it, or is a `.tfvars` file that Terraform loads by itself | is left out |

What is left out is what `coder templates push` leaves out.
"""

import hashlib
import io
import posixpath
import unicodedata
from collections.abc import Iterable, Mapping

from coder_k8s.controllers.candidates import shortened

MAX_FILES = 500
MAX_ARCHIVE = 3 * 1024 * 1024
"""Bytes of the archive. coderd sends it to a provisioner with all values of variables, in one message of 4 MiB."""
TERRAFORM = (".tf", ".tf.json")
VALUES = ("terraform.tfvars", "terraform.tfvars.json")
AUTOMATIC_VALUES = (".auto.tfvars", ".auto.tfvars.json")
LOCK_FILE = ".terraform.lock.hcl"
FILE_MODE, DIRECTORY_MODE = 0o644, 0o755


class InvalidFiles(Exception):
    """The files are not a template; the message states what to change."""


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return the files as a tar archive in ustar format, with directories; raise `InvalidFiles` if they are invalid."""
    for name in files:
        check_name(name)
    kept = {name: files[name] for name in sorted(files) if not is_left_out(name)}
    check_files(kept)
    import tarfile  # takes 1 MB, and most operators have no templates

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT, encoding="utf-8") as target:
        entries: dict[str, bytes | None] = {**dict.fromkeys(directories(kept)), **kept}
        for name, data in sorted(entries.items()):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.mode = DIRECTORY_MODE if data is None else FILE_MODE
            entry.size = len(data or b"")
            target.addfile(entry, io.BytesIO(data or b""))
    if len(content.getbuffer()) > MAX_ARCHIVE:
        raise InvalidFiles(_too_large(len(content.getbuffer())))
    return content.getvalue()


def content_digest(data: bytes) -> str:
    """Return the SHA-256 of an archive, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_name(name: str) -> None:
    """Raise `InvalidFiles` unless this is the relative path of a file that fits into an archive."""
    parts = name.split("/")
    if not name.isprintable():
        problem = "contains control characters or invalid UTF-8"
    elif name.startswith("/"):
        problem = "is an absolute path; use a path relative to the template"
    elif ".." in parts:
        problem = "contains '..'; use a path inside the template"
    elif "" in parts or "." in parts:
        problem = "has an empty part or a '.' in its path"
    elif not _fits(name):
        problem = "is too long for a tar archive; use at most 100 bytes for the last part and 255 for the path"
    else:
        return
    raise InvalidFiles(f"File name '{displayed(name)}' {problem}")


def is_left_out(name: str) -> bool:
    """Whether `coder templates push` leaves out a file: hidden ones, states, and values of variables."""
    parts = name.split("/")
    hidden = any(part.startswith(".") for part in parts[:-1]) or (parts[-1].startswith(".") and parts[-1] != LOCK_FILE)
    values = name in ("terraform.tfvars", "terraform.tfvars.json") or name.endswith(
        (".auto.tfvars", ".auto.tfvars.json")
    )
    return hidden or values or ".tfstate" in name


def check_files(files: Mapping[str, bytes]) -> None:
    """Raise `InvalidFiles` if the files are no template, are too many or too large, or exclude each other."""
    if not any("/" not in name and name.endswith(TERRAFORM) for name in files):
        raise InvalidFiles("There is no .tf file at the top of the source; add one, or correct the path of the source")
    if len(files) > MAX_FILES:
        raise InvalidFiles(f"The source has {len(files)} files, and at most {MAX_FILES} are allowed; remove some")
    if (size := sum(map(len, files.values()))) > MAX_ARCHIVE:
        raise InvalidFiles(_too_large(size))
    for name in directories(files):
        if name in files:
            raise InvalidFiles(f"'{displayed(name)}' is a file and a directory; rename one of them")
    known: dict[str, str] = {}
    for name in files:
        if (other := known.setdefault(unicodedata.normalize("NFC", name), name)) != name:
            raise InvalidFiles(f"Two files have the name '{displayed(other)}' in different Unicode forms; remove one")


def directories(files: Iterable[str]) -> set[str]:
    """Return the directories of files, which provisioners do not create by themselves."""
    found = set()
    for name in files:
        while name := posixpath.dirname(name):
            found.add(name)
    return found


def displayed(name: str) -> str:
    """Return a name for a message."""
    return shortened("".join(each if each.isprintable() else "?" for each in name))


def _fits(name: str) -> bool:
    import tarfile

    try:
        tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT, "utf-8")
    except ValueError:
        return False
    return True


def _too_large(size: int) -> str:
    return (
        f"The source has {size // 1024 + 1} KiB, and at most {MAX_ARCHIVE // 1024} KiB are allowed; remove some files"
    )
