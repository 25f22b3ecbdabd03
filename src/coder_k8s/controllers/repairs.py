"""Whether a write of a child repaired what another client had changed."""

from coder_k8s.kube.comparison import differences
from coder_k8s.kube.objects import Manifest, Unstructured

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
