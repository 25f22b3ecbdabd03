"""What a process remembers of the children that it has applied."""

import sys
from typing import Any, NamedTuple

from coder_k8s.kube.objects import Key, Kind, Object, Unstructured

Child = tuple[Kind[Any], Key]


class _State(NamedTuple):
    """UIDs of the owner and the child; digest of its manifest, and the resourceVersion that it had with it."""

    owner: str
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
        child = (kind, live.key)
        digest = sys.intern(digest)  # it is also a label of the child
        state = _State(owner.metadata.uid, live.metadata.uid, digest, live.metadata.resource_version)
        if self._states.get(child) != state:
            self._states[child] = state
            self._of_owner.setdefault(owner.key, set()).add(child)

    def is_recorded(self, kind: Kind[Any], live: Unstructured, digest: str) -> bool:
        """Return whether the child has not changed since the manifest with this digest was applied."""
        state = self._states.get((kind, live.key))
        version = (live.metadata.uid, live.metadata.resource_version)
        return state is not None and state.digest == digest and (state.uid, state.resource_version) == version

    def uid(self, kind: Kind[Any], owner: Object, key: Key) -> str:
        """Return the UID of the child that was applied for this owner; empty if there was none."""
        state = self._states.get((kind, key))
        return state.uid if state is not None and state.owner == owner.metadata.uid else ""

    def remove(self, kind: Kind[Any], key: Key) -> None:
        """Forget a child that the operator itself deletes."""
        self._states.pop((kind, key), None)

    def forget(self, owner: Key) -> None:
        """Forget the children of a deleted object."""
        for child in self._of_owner.pop(owner, ()):
            self._states.pop(child, None)
