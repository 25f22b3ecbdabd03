"""The state directory of `coder-k8s dev`, locked while in use and kept between runs."""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from .processes import free_port, is_free

LOCK = "coder-k8s-dev.lock"
STATE = "memory.json"
MAX_FOLDERS = 9

V = TypeVar("V", int, str)


class FolderUnusable(Exception):
    """The folder cannot be used; the message explains why."""


class Home:
    """The files of one `coder-k8s dev`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / STATE
        self._saved: dict[str, int | str] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def port(self, name: str) -> int:
        """Return a free port, the same as in earlier runs if possible, because the saved state contains addresses."""
        known = self._saved.get(name)
        if not isinstance(known, int) or not is_free(known):
            known = self._save(name, free_port())
        return known

    def password(self, name: str) -> str:
        """Return a password that is generated in the first run."""
        return str(self._saved.get(name) or self._save(name, secrets.token_urlsafe(24)))

    def _save(self, name: str, value: V) -> V:
        self._saved[name] = value
        self._file.touch(mode=0o600)
        self._file.write_text(json.dumps(self._saved))
        return value

    def wipe(self) -> None:
        """Delete the state of earlier runs."""
        for path in self.folder.iterdir():
            if path.is_symlink():  # the files of PostgreSQL can be in another directory
                shutil.rmtree(path.resolve(), ignore_errors=True)
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        self._saved.clear()

    def drop_logs(self) -> None:
        """Delete the logs of earlier runs."""
        for path in self.folder.glob("*.log"):
            path.unlink()


@contextmanager
def claim(folders: Iterable[Path]) -> Iterator[Home]:
    """Lock the first folder that is not in use, until this process exits."""
    with ExitStack() as stack:
        tried = []
        for folder in folders:
            if _lock(stack.enter_context(_open(folder))):
                yield Home(folder)
                return
            tried.append(str(folder))
        raise FolderUnusable(f"another `coder-k8s dev` uses {', '.join(tried)}: choose another --folder")


def _open(folder: Path) -> TextIO:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = folder / LOCK
    if not lock.exists() and any(folder.iterdir()):
        raise FolderUnusable(f"{folder} contains other files: choose a folder that is empty or does not exist")
    return lock.open("w")


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def default_folders(name: str, environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield the default folders: the first one, and others to use while it is locked."""
    base = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "coder-k8s"
    yield base / name
    for number in range(2, MAX_FOLDERS + 1):
        yield base / f"{name}-{number}"
