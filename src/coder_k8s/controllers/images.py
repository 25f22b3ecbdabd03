"""The image of pods, and its pull policy."""

from coder_k8s.api import CoderControlPlane
from coder_k8s.kube.objects import Unstructured


def pull_policy(image: str) -> str:
    """The pull policy that Kubernetes sets by default for an image.

    Kubernetes sets it only where no policy is set yet, so the policy of one tag would stay when the tag changes.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def followed_image(own: str, plane: CoderControlPlane, live: Unstructured | None, container: str) -> str:
    """The image of pods that belong to a control plane; empty while it is not known.

    | image of the spec | `status.image` of the control plane | live Deployment | image         |
    |-------------------|-------------------------------------|-----------------|---------------|
    | set               | any                                 | any             | the spec's    |
    | not set           | set                                 | any             | the status's  |
    | not set           | empty                               | exists          | unchanged     |
    | not set           | empty                               | none            | not known yet |

    The image in the control plane's spec is not used: until its rollout is complete, coderd runs an older one.
    """
    if own or plane.status.image:
        return own or plane.status.image
    return image_in(live, container) if live is not None else ""


def image_in(deployment: Unstructured, container: str) -> str:
    """The image of a container, found by its name: a webhook may insert another container before it."""
    containers = deployment.manifest["spec"]["template"]["spec"]["containers"]
    return next((each["image"] for each in containers if each["name"] == container), "")
