"""Which image pods run, and what follows from its name."""

from coder_k8s.api import CoderControlPlane
from coder_k8s.kube.objects import Unstructured


def pull_policy(image: str) -> str:
    """When nodes fetch an image, by Kubernetes' own rule.

    Kubernetes applies it only where no policy is set yet, so what it chose for one tag would stay with the next.
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
    | not set           | empty                               | exists          | stays         |
    | not set           | empty                               | none            | not known yet |

    The control plane's spec does not count: until its rollout is complete, coderd is older than that image.
    """
    if own or plane.status.image:
        return own or plane.status.image
    return image_in(live, container) if live is not None else ""


def image_in(deployment: Unstructured, container: str) -> str:
    """The image of a container, by its name: a webhook may put another one before it."""
    containers = deployment.manifest["spec"]["template"]["spec"]["containers"]
    return next((each["image"] for each in containers if each["name"] == container), "")
