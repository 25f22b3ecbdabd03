"""What a process remembers of the children that it has applied."""

import sys
from typing import Any

import msgspec

from coder_k8s.kube.objects import Key, Kind, Object, Unstructured

Child = tuple[Kind[Any], Key]


class _State(msgspec.Struct, frozen=True, gc=False):
    """Key and UID of the owner, UID of the child; digest of its manifest, and the resourceVersion it had with it."""

    owner: Key
    owner_uid: str
    uid: str
    digest: str
    resource_version: str


class AppliedChildren:
    """The last state of each child that was applied."""

    def __init__(self) -> None:
        self._states: dict[Child, _State] = {}
        self._of_owner: dict[Key, set[Child]] = {}

    def record(self, kind: Kind[Any], owner: Object, live: Unstructured, digest: str = "") -> None:
        """Record that this is the live state of a child for the manifest with this digest, if any."""
        child, owner_key = (kind, live.key), owner.key
        digest = sys.intern(digest)  # it is also a label of the child
        state = _State(owner_key, owner.metadata.uid, live.metadata.uid, digest, live.metadata.resource_version)
        if self._states.get(child) != state:
            self._states[child] = state
            self._of_owner.setdefault(owner_key, set()).add(child)

    def is_recorded(self, kind: Kind[Any], live: Unstructured, digest: str) -> bool:
        """Return whether the child has not changed since the manifest with this digest was applied."""
        state = self._states.get((kind, live.key))
        version = (live.metadata.uid, live.metadata.resource_version)
        return state is not None and state.digest == digest and (state.uid, state.resource_version) == version

    def uid(self, kind: Kind[Any], owner: Object, key: Key) -> str:
        """Return the UID of the child that was applied for this owner; empty if there was none."""
        state = self._states.get((kind, key))
        return state.uid if state is not None and state.owner_uid == owner.metadata.uid else ""

    def remove(self, kind: Kind[Any], key: Key) -> None:
        """Forget a child that the operator itself deletes."""
        child = (kind, key)
        if (state := self._states.pop(child, None)) is not None:
            self._of_owner[state.owner].discard(child)

    def forget(self, owner: Key) -> None:
        """Forget the children of a deleted object."""
        for child in self._of_owner.pop(owner, ()):
            self._states.pop(child, None)
