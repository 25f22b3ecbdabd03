"""What a stand-in remembers when it is started again: what it gave out must still be good then.

Daemons log in again by themselves, tokens are in the database or go with the run, and the rest is for tests.
"""

from pathlib import Path

import msgspec

from coder_k8s.dev.coderd_server.records import Proxy, StoredLicense
from coder_k8s.dev.coderd_server.state import State, StoredKey


class Saved(msgspec.Struct):
    """The part of a state that lasts."""

    deployment_id: str
    organization_id: str
    organizations: dict[str, str]
    licenses: list[StoredLicense]
    keys: dict[str, StoredKey]
    proxies: dict[str, Proxy]
    deleted_proxies: dict[str, Proxy]


class Memory:
    """Keeps that part in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def recall(self, state: State) -> None:
        """Let a new state be as the last one was."""
        if not self._path.exists():
            return
        saved = msgspec.json.decode(self._path.read_bytes(), type=Saved)
        for name in Saved.__struct_fields__:
            setattr(state, name, getattr(saved, name))

    def save(self, state: State) -> None:
        """Write what changed, all or nothing: the process may be killed at any time."""
        content = msgspec.json.encode(Saved(*(getattr(state, name) for name in Saved.__struct_fields__)))
        if content == self._written:
            return
        unfinished = self._path.with_suffix(".part")
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(content)
        unfinished.replace(self._path)
        self._written = content
