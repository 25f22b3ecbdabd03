"""The image of pods, and its pull policy."""

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.updates import Step
from coder_k8s.kube.objects import Unstructured

from .deployments import image_in

STOPPED = frozenset((Step.DRAIN, Step.STOP, Step.MIGRATE, Step.VERIFY, Step.SCALE_BACK, Step.ROLLBACK))
"""Steps of an update in which no provisioner runs."""
UPDATING = STOPPED | {Step.ROLLOUT, Step.FLEET}
"""Steps of an update in which pods are replaced."""
PROVISIONERS_FIRST = frozenset((Step.SCALE_BACK, Step.FLEET))
"""Steps of an update in which workspace proxies keep their image."""


def pull_policy(image: str) -> str:
    """The pull policy that Kubernetes sets by default for an image.

    Kubernetes sets it only where no policy is set yet, so the policy of one tag would stay when the tag changes.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def stops_provisioners(plane: CoderControlPlane) -> bool:
    """Whether an update of the control plane has stopped its provisioners, so that no build runs meanwhile."""
    return plane.status.update is not None and plane.status.update.step in STOPPED


def is_updating(plane: CoderControlPlane) -> bool:
    """Whether an update of the control plane replaces pods."""
    return plane.status.update is not None and plane.status.update.step in UPDATING


def followed_image(own: str, plane: CoderControlPlane, live: Unstructured | None, container: str) -> str:
    """The image of pods that belong to a control plane; empty while it is not known.

    | image of the spec | `status.image` of the control plane | live Deployment | image         |
    |-------------------|-------------------------------------|-----------------|---------------|
    | set               | any                                 | any             | the spec's    |
    | not set           | set                                 | any             | the status's  |
    | not set           | set, provisioners are being updated | exists          | unchanged     |
    | not set           | empty                               | exists          | unchanged     |
    | not set           | empty                               | none            | not known yet |

    The image in the control plane's spec is not used: until its rollout is complete, coderd runs an older one.
    """
    update = plane.status.update
    if not own and live is not None and update is not None and update.step in PROVISIONERS_FIRST:
        return image_in(live, container)
    if own or plane.status.image:
        return own or plane.status.image
    return image_in(live, container) if live is not None else ""
