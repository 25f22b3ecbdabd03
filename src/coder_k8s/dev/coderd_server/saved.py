"""The state of a simulator that persists across restarts, so that issued keys and tokens stay valid.

Daemons reconnect by themselves. Session tokens are in the database, or are valid for one run only.
"""

from pathlib import Path

import msgspec

from coder_k8s.dev.coderd_server.records import Organization, Proxy, StoredKey, StoredLicense
from coder_k8s.dev.coderd_server.state import State


class Saved(msgspec.Struct):
    """The persistent part of a state."""

    deployment_id: str
    organization_id: str
    organizations: dict[str, str]
    licenses: list[StoredLicense]
    keys: dict[str, StoredKey]
    proxies: dict[str, Proxy]
    deleted_proxies: dict[str, Proxy]
    organization_details: dict[str, Organization] = {}


class StateFile:
    """Stores the persistent part of a state in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def restore(self, state: State) -> None:
        """Restore the stored state."""
        if not self._path.exists():
            return
        saved = msgspec.json.decode(self._path.read_bytes(), type=Saved)
        for name in Saved.__struct_fields__:
            setattr(state, name, getattr(saved, name))

    def save(self, state: State) -> None:
        """Write changes atomically, because the process may be killed at any time."""
        content = msgspec.json.encode(Saved(*(getattr(state, name) for name in Saved.__struct_fields__)))
        if content == self._written:
            return
        unfinished = self._path.with_suffix(".part")
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(content)
        unfinished.replace(self._path)
        self._written = content
