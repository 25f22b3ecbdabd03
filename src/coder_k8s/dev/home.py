"""The folder of one `coder-k8s dev`: nobody else uses it meanwhile, and it remembers things from run to run."""

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
MEMORY = "memory.json"
MOST = 9

V = TypeVar("V", int, str)


class FolderRefused(Exception):
    """The folder cannot be used; the message says why."""


class Home:
    """The files of one `coder-k8s dev`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memory = folder / MEMORY
        self._remembered: dict[str, int | str] = json.loads(self._memory.read_text()) if self._memory.exists() else {}

    def port(self, name: str) -> int:
        """A free port, the same as in earlier runs if it can be: addresses are part of what survives."""
        known = self._remembered.get(name)
        if not isinstance(known, int) or not is_free(known):
            known = self._remember(name, free_port())
        return known

    def password(self, name: str) -> str:
        """A password that was made up in the first run."""
        return str(self._remembered.get(name) or self._remember(name, secrets.token_urlsafe(24)))

    def _remember(self, name: str, value: V) -> V:
        self._remembered[name] = value
        self._memory.touch(mode=0o600)
        self._memory.write_text(json.dumps(self._remembered))
        return value

    def wipe(self) -> None:
        """Forget all that earlier runs left."""
        for path in self.folder.iterdir():
            if path.is_symlink():  # PostgreSQL's files may have to be elsewhere
                shutil.rmtree(path.resolve(), ignore_errors=True)
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        self._remembered.clear()

    def drop_logs(self) -> None:
        """Let the logs begin with this run."""
        for path in self.folder.glob("*.log"):
            path.unlink()


@contextmanager
def claim(folders: Iterable[Path]) -> Iterator[Home]:
    """Have the first folder that nobody uses, until the end of this process, whichever way it ends."""
    with ExitStack() as stack:
        tried = []
        for folder in folders:
            if _lock(stack.enter_context(_open(folder))):
                yield Home(folder)
                return
            tried.append(str(folder))
        raise FolderRefused(f"another `coder-k8s dev` uses {', '.join(tried)}: choose another --folder")


def _open(folder: Path) -> TextIO:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = folder / LOCK
    if not lock.exists() and any(folder.iterdir()):
        raise FolderRefused(f"{folder} holds other things: choose a folder that is empty or does not exist")
    return lock.open("w")


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def default_folders(name: str, environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Where the state of users belongs: a folder of that name, and others for whoever comes while it is in use."""
    base = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "coder-k8s"
    yield base / name
    for number in range(2, MOST + 1):
        yield base / f"{name}-{number}"
