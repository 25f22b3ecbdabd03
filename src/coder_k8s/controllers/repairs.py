"""Whether a write of a child repaired what another client had changed or deleted."""

from typing import Any

from coder_k8s.kube.comparison import differences
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured

from .labels import DIGEST


def restored(before: Unstructured, live: Unstructured, desired: Manifest) -> list[str]:
    """The fields that a write restored: the desired manifest is the same as at the last write, and the child was not.

    | digest of the manifest   | child before the write | child after it          | fields       |
    |--------------------------|------------------------|-------------------------|--------------|
    | another one              | any                    | any                     | none         |
    | the same                 | as desired             | as desired              | none         |
    | the same                 | changed                | as desired              | the changed  |
    | the same                 | changed                | changed again by a webhook | none      |
    """
    if live is before or before.metadata.labels.get(DIGEST) != live.metadata.labels.get(DIGEST):
        return []
    left = differences(live.manifest, desired)
    return [field for field in differences(before.manifest, desired) if field not in left]


class AppliedChildren:
    """The UIDs of the children that this process has applied, to recognize one that it creates again."""

    def __init__(self) -> None:
        self._uids: dict[tuple[Kind[Any], Key], tuple[str, str]] = {}
        """Of the owner and the child."""
        self._of_owner: dict[Key, set[tuple[Kind[Any], Key]]] = {}

    def record(self, kind: Kind[Any], owner: Object, live: Unstructured) -> bool:
        """Record a child that was applied; returns whether the owner had another one of this name before."""
        child, uids = (kind, live.key), (owner.metadata.uid, live.metadata.uid)
        before = self._uids.get(child)
        if before == uids:
            return False
        self._uids[child] = uids
        self._of_owner.setdefault(owner.key, set()).add(child)
        return before is not None and before[0] == uids[0]

    def remove(self, kind: Kind[Any], key: Key) -> None:
        """Forget a child that the operator itself deletes."""
        self._uids.pop((kind, key), None)

    def forget(self, owner: Key) -> None:
        """Forget the children of a deleted object."""
        for child in self._of_owner.pop(owner, ()):
            self._uids.pop(child, None)
