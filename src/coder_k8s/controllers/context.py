"""What the steps of one controller share."""

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

from coder_k8s.api import CoderObject
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.kinds import SECRET_METADATA
from coder_k8s.kube.objects import Key, Kind, Unstructured

from .children import Children
from .cleanup import Cleanup
from .finalizers import Finalizers
from .labels import DIGEST, MANAGED
from .runtime import Runtime
from .secrets import SecretReader
from .status import StatusWriter

T = TypeVar("T", bound=CoderObject)


class Context(Generic[T]):
    """The objects of one kind with their children, and what reads and writes them."""

    def __init__(
        self,
        runtime: Runtime,
        kind: Kind[T],
        children: Sequence[Kind[Unstructured]],
        *,
        read: Sequence[Kind[Unstructured]] = (),
        optional: Collection[Kind[Unstructured]] = (),
    ) -> None:
        """`read` are kinds with our labels and other owners, such as pods. A cluster may lack the `optional` kinds."""
        self.runtime = runtime
        self.kind = kind
        self.name = kind.name.lower()
        """Name of the controller."""
        self.client, self.recorder, self.now = runtime.client, runtime.recorder, runtime.now
        self.objects = runtime.informer(kind)
        self.owned = tuple(children)
        caches = {
            each: runtime.informer(each, labels=MANAGED, optional=each in optional) for each in (*children, *read)
        }
        applier = Applier(self.client, self.name, DIGEST)
        self.children = Children(self.client, applier, caches, kind, self.recorder)
        self.secrets = runtime.informer(SECRET_METADATA)
        """Metadata of all Secrets."""
        self.reader = SecretReader(self.client, self.secrets)
        self.status = StatusWriter(self.client, kind, self.objects, self.recorder, self.name, self.now, runtime.metrics)
        self.finalizers = Finalizers(self.client, kind, self.objects, self.name)
        self.cleanup = Cleanup(self.client, self.now)

    def latest(self, seen: T) -> T:
        """The object with what was written to it since it was seen, unless its generation has changed."""
        known, metadata = self.objects.get(seen.key), seen.metadata
        if known is None or (known.metadata.uid, known.metadata.generation) != (metadata.uid, metadata.generation):
            return seen
        return known

    def forget(self, key: Key) -> None:
        """Drop what is held in memory about a deleted object."""
        self.children.forget(key)
        self.cleanup.forget(key)
